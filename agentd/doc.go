// Package agentd is the guest's PID 1: it makes the machine that the host
// describes in its handshake out of a kernel and some disks, and then runs
// processes for the host.
//
//	port "msb.agent" ─► one gRPC connection ─► handshake gate ─► exec ─► spawner thread ─► workload
//	                                                                        reaper ◄─ wait4
//
// Exec also starts the agent's own SFTP server, agentd executed again, which has
// no more rights than any other process of its user. Connect opens TCP
// connections to the guest's own addresses.
//
// A machine may be saved in the middle of its session. The host with which it goes
// on begins another one, in which the processes of the one before are nobody's.
//
// Containers are process trees with a root, namespaces and a control group of
// their own: their processes are the agent's own program first, which makes or
// enters the namespaces and gives up its rights.
//
// It lives in a mount namespace and a root of its own; processes start from a
// thread that stands in the workload's root, so no file of an image or of a
// workload is ever run as, or instead of, agentd.
//
// It does not protect the host: the guest's root user can do what it likes to
// this process, and the host must judge every byte that comes from here
// (agentd/agentclient does). It does not protect processes of one guest from
// each other beyond their users: the machine is the boundary.
package agentd
