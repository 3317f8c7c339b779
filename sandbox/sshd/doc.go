// Package sshd is the SSH server of one sandbox, in its supervisor.
//
//	ssh ─ ProxyCommand ─► msb ssh-proxy ─ control.sock ─► supervisor: Server ─► Guest ─► agentd
//	        session: shell, exec      ─► Exec
//	        session: subsystem sftp   ─► Exec of the agent's own SFTP server
//	        direct-tcpip to loopback  ─► Connect
//	        tcpip-forward, agent, X11 ─► Listen, which is refused unless the policy's [ssh] allows it
//
// msb ssh-proxy copies bytes and understands none. Nothing listens anywhere: the control socket is its user's alone, and
// whoever reaches it may do what msb exec does anyway.
//
// What would lead around the policy is refused: Unix sockets, connections to anything but the guest's loopback, and,
// unless [ssh] allows them, reverse, agent and X11 forwarding.
//
// The supervisor holds the policy's secrets, and this package none: it imports nothing that has one, gets no more than
// Guest and its own keys, and carries the guest's bytes, in which placeholders stand where values would. A panic in a
// connection ends that connection; clients, channels and handshakes are bounded (limits.go), and one that reads nothing
// holds up itself alone.
//
// It does not protect against its client, who may run any command in the guest, and whose own ssh writes what
// x/crypto/ssh reads here: a panic in that package's own goroutines would end the sandbox. It does not judge what the
// guest's programs write: the client's programs (ssh, rsync, git) read the bytes of an untrusted machine.
package sshd
