// Package runner starts a VMM process with as few rights as it can live with,
// and watches over it.
//
// The supervisor executes vm/vmm, a small program that msb carries, or msb
// itself under the same hidden verb (Program). That second process takes its own
// rights away and then becomes the VMM by execve:
//
//	supervisor ── Launch ──► msb __vmm ── Main ──► QEMU, or msb __vmm-krun
//	               plan (pipe) ───►   own user, mount, network, pid, ipc and uts namespaces
//	             ◄─── status (pipe)   a root of nothing but the files in the plan
//	           liveness (pipe) ───►   rlimits, Landlock, no capabilities, seccomp
//
// Everything is applied on one locked thread right before execve: what a
// thread carries is what the program that it executes carries in all of its
// threads, so none of it depends on reaching the Go runtime's other threads.
//
// System calls are an allowlist for each VMM, calls, with the reason for each
// entry; a [Recording] finds out what is missing in it.
//
// Where user namespaces are forbidden (some containers, Ubuntu's AppArmor
// profile) the same program runs without them: Landlock keeps files shut,
// seccomp refuses new sockets and processes, and every way to another process
// or to a file's attributes. [vm.Machine.Confinement] says which it was.
//
// The VMM dies with its supervisor: by the parent-death signal, which is bound
// to the thread that started it, so that this thread is kept; and by the
// liveness pipe, which covers the moment before the signal is armed.
//
// What this package does not protect against: a VMM that is broken out of may
// still use its CPU and memory, write its writable disks, and talk to the
// supervisor over the descriptors it holds. The system calls that it needs
// remain the host kernel's attack surface, KVM's ioctls among them. Without
// namespaces it sees which files and processes there are; without Landlock as
// well it opens every file of the user's.
package runner
