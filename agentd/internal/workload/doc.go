//go:build linux

// Package workload starts and reaps the guest's processes.
//
//	Command ─► Spawner ─(one locked OS thread, in the workload's root)─► fork, exec
//	                                                              Reaper ◄─ wait4
//
// Names in a Command (user, working directory, program) are looked up on that
// thread, so they mean what they mean to the workload, and a link in an image
// can't lead into agentd's own root.
//
// It does not protect against a workload that makes its own file system hang:
// the thread then waits with it, and the host's deadlines end the session.
package workload
