// Package sshd is the SSH server of one sandbox, for one client: what `msb ssh-proxy` speaks on its standard input and
// output.
//
//	ssh ─ ProxyCommand ─► msb ssh-proxy: Server ─► Guest ─ control.sock ─► supervisor ─► agentd
//	        session: shell, exec      ─► Exec
//	        session: subsystem sftp   ─► Exec of the agent's own SFTP server
//	        direct-tcpip to loopback  ─► Connect
//	        tcpip-forward, agent, X11 ─► Listen, which the supervisor refuses unless the policy's [ssh] allows it
//
// It runs in the process that the client's ssh started, not in the supervisor: that holds the policy's secrets, and an
// SSH implementation has no business beside them. The process has the rights of a caller of `msb exec`, which is all
// that its user can do anyway; nothing listens anywhere, and the control socket is its user's alone.
//
// What would lead around the policy is refused: Unix sockets, connections to anything but the guest's loopback, and,
// unless [ssh] allows them, reverse, agent and X11 forwarding.
//
// It does not protect against its client, who may run any command in the guest. It does not judge what the guest's
// programs write: the client's programs (ssh, rsync, git) read the bytes of an untrusted machine.
package sshd
