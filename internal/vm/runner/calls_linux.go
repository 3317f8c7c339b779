package runner

import (
	"slices"

	"golang.org/x/sys/unix"
)

// call is a system call that a VMM may make, with the reason why it is here.
// Whatever is in no list is refused.
type call struct {
	nr  uint32
	why string
	// by is the one VMM that makes it; zero means both.
	by VMM
	// only restricts one argument; nil means that any will do.
	only *argument
}

// argument is a condition on the lower half of one argument: the kernel takes
// no more of these.
type argument struct {
	index int
	// oneOf are the values that pass; with set or unset, they are not looked at.
	oneOf []uint32
	// set are bits of which all must be set, unset bits of which none may be.
	set, unset uint32
}

func is(index int, values ...uint32) *argument {
	return &argument{index: index, oneOf: values}
}

// namespaceBits are the clone flags that make new namespaces, through which a
// process gets capabilities back.
const namespaceBits = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// calls are what the VMMs may do as process self. `make record-calls` records
// QEMU's under emulation; libkrun's tests run with the list in force. An entry
// that no recording has shown, because it is for KVM, another kernel, another C
// library or a path that rarely runs, says "unrecorded".
//
// Not here, and so refused: chmod, chown, setxattr, utime and their kin, link,
// rename, unlink, mkdir and mknod (they would work on what Landlock lets be
// opened, and the first four on any file of the user's); every kind of IPC
// that is found by a name or key; new sockets; other processes by any way.
func calls(self int) []call {
	pid := uint32(self)
	return slices.Concat(callsOfArch, []call{
		// Memory.
		{nr: unix.SYS_MMAP, why: "guest memory, libraries, translated code"},
		{nr: unix.SYS_MUNMAP, why: "gives memory back"},
		{nr: unix.SYS_MREMAP, why: "realloc of large blocks"},
		{nr: unix.SYS_MPROTECT, why: "the dynamic linker, thread stacks, translated code"},
		{nr: unix.SYS_MADVISE, why: "huge pages, DONTFORK, giving pages back"},
		{nr: unix.SYS_MSYNC, by: QEMU, why: "unrecorded: QEMU's write-back of mapped files"},
		{nr: unix.SYS_MINCORE, why: "unrecorded: Go's runtime probes mappings on some kernels"},
		{nr: unix.SYS_BRK, why: "malloc"},
		{nr: unix.SYS_MEMBARRIER, why: "unrecorded: QEMU's RCU and Go's garbage collector where the kernel offers it"},

		// Files: Landlock and the mounts decide which ones.
		{nr: unix.SYS_OPENAT, why: "disks, kernel, firmware, libraries"},
		{nr: unix.SYS_CLOSE, why: "descriptors"},
		{nr: unix.SYS_CLOSE_RANGE, why: "unrecorded: newer C libraries"},
		{nr: unix.SYS_READ, why: "disks, pipes, event descriptors"},
		{nr: unix.SYS_WRITE, why: "disks, pipes, event descriptors, stderr"},
		{nr: unix.SYS_READV, why: "unrecorded for QEMU: frames"},
		{nr: unix.SYS_WRITEV, why: "unrecorded for QEMU: frames, libkrun's console"},
		{nr: unix.SYS_PREAD64, why: "disks"},
		{nr: unix.SYS_PWRITE64, why: "disks"},
		{nr: unix.SYS_PREADV, why: "disks"},
		{nr: unix.SYS_PWRITEV, why: "unrecorded for QEMU: disks"},
		{nr: unix.SYS_PREADV2, why: "unrecorded: disks with newer C libraries"},
		{nr: unix.SYS_PWRITEV2, why: "unrecorded: disks with newer C libraries"},
		{nr: unix.SYS_LSEEK, why: "sizes of disks, holes"},
		{nr: unix.SYS_FSTAT, why: "disks, libraries"},
		{nr: unix.SYS_STATX, why: "unrecorded for QEMU: Rust's standard library, newer C libraries"},
		{nr: unix.SYS_FSTATFS, why: "unrecorded for QEMU: QEMU looks what a disk's file system can do"},
		{nr: unix.SYS_STATFS, why: "the same by path"},
		{nr: unix.SYS_FACCESSAT, why: "unrecorded for QEMU: the dynamic linker, QEMU's search for firmware"},
		{nr: unix.SYS_READLINKAT, why: "a program's own path"},
		{nr: unix.SYS_GETDENTS64, why: "unrecorded: Go's and QEMU's directories of what is granted"},
		{nr: unix.SYS_GETCWD, why: "unrecorded: QEMU makes paths absolute"},
		{nr: unix.SYS_FSYNC, why: "unrecorded: a flush of the guest's where there is no fdatasync"},
		{nr: unix.SYS_FDATASYNC, why: "a flush of the guest's"},
		{nr: unix.SYS_FALLOCATE, why: "discard and writing zeroes; RLIMIT_FSIZE bounds it"},
		{nr: unix.SYS_FTRUNCATE, by: Libkrun, why: "libkrun's disks; RLIMIT_FSIZE bounds it"},
		{nr: unix.SYS_FADVISE64, by: QEMU, why: "unrecorded: QEMU's hints about disks"},
		{nr: unix.SYS_DUP, by: Libkrun, why: "libkrun copies the descriptors that it is given"},
		{nr: unix.SYS_DUP3, why: "unrecorded: the same in other libraries"},
		// Not F_SETOWN and F_SETSIG: with O_ASYNC they send a signal to any process of the user.
		{nr: unix.SYS_FCNTL, why: "flags and locks of descriptors", only: is(1,
			unix.F_DUPFD, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL,
			unix.F_GETLK, unix.F_SETLK, unix.F_SETLKW, unix.F_OFD_GETLK, unix.F_OFD_SETLK, unix.F_OFD_SETLKW,
			unix.F_DUPFD_CLOEXEC, unix.F_SETPIPE_SZ, unix.F_GETPIPE_SZ, unix.F_ADD_SEALS, unix.F_GET_SEALS)},

		// Descriptors that it was handed: sockets, terminal. Not FIOSETOWN, see fcntl, nor TIOCSTI.
		{nr: unix.SYS_SENDMSG, why: "frames, the agent's port"},
		{nr: unix.SYS_RECVMSG, why: "frames, the agent's port"},
		{nr: unix.SYS_SENDTO, by: Libkrun, why: "libkrun's frames"},
		{nr: unix.SYS_RECVFROM, by: Libkrun, why: "libkrun's frames"},
		{nr: unix.SYS_GETSOCKOPT, why: "what kind of socket it was handed"},
		{nr: unix.SYS_SETSOCKOPT, why: "libkrun sizes the link's buffers"},
		{nr: unix.SYS_GETSOCKNAME, why: "QEMU looks at the sockets that it was handed"},
		{nr: unix.SYS_GETPEERNAME, why: "the same"},
		{nr: unix.SYS_SHUTDOWN, why: "QEMU closes a channel"},

		// Events and time.
		{nr: unix.SYS_PIPE2, why: "wakes its threads"},
		{nr: unix.SYS_EVENTFD2, why: "wakes its threads, KVM's interrupts"},
		{nr: unix.SYS_SIGNALFD4, by: QEMU, why: "QEMU's signals"},
		{nr: unix.SYS_PPOLL, why: "QEMU's main loop"},
		{nr: unix.SYS_PSELECT6, why: "unrecorded: older loops, Go's runtime"},
		{nr: unix.SYS_EPOLL_CREATE1, why: "main loops"},
		{nr: unix.SYS_EPOLL_CTL, why: "main loops"},
		{nr: unix.SYS_EPOLL_PWAIT, why: "main loops"},
		{nr: unix.SYS_EPOLL_PWAIT2, why: "unrecorded: main loops of newer libraries"},
		{nr: unix.SYS_TIMERFD_CREATE, by: Libkrun, why: "libkrun's timers"},
		{nr: unix.SYS_TIMERFD_SETTIME, by: Libkrun, why: "libkrun's timers"},
		{nr: unix.SYS_TIMERFD_GETTIME, by: Libkrun, why: "unrecorded: libkrun's timers"},
		{nr: unix.SYS_TIMER_CREATE, by: QEMU, why: "unrecorded: QEMU's timers on some kernels"},
		{nr: unix.SYS_TIMER_SETTIME, by: QEMU, why: "unrecorded: the same"},
		{nr: unix.SYS_TIMER_GETTIME, by: QEMU, why: "unrecorded: the same"},
		{nr: unix.SYS_TIMER_GETOVERRUN, by: QEMU, why: "unrecorded: the same"},
		{nr: unix.SYS_TIMER_DELETE, by: QEMU, why: "unrecorded: the same"},
		{nr: unix.SYS_CLOCK_GETTIME, why: "clocks, where they are no vDSO's"},
		{nr: unix.SYS_CLOCK_GETRES, why: "clocks"},
		{nr: unix.SYS_CLOCK_NANOSLEEP, why: "waiting"},
		{nr: unix.SYS_NANOSLEEP, why: "waiting"},
		{nr: unix.SYS_GETTIMEOFDAY, why: "unrecorded: clocks, where they are no vDSO's"},

		// Threads, of this process only.
		// Process creation is CLONE_THREAD or nothing. clone3 hides its flags from a filter and is refused
		// as by an older kernel, upon which C libraries take clone.
		{nr: unix.SYS_CLONE, why: "threads", only: &argument{index: 0, set: unix.CLONE_THREAD, unset: namespaceBits}},
		{nr: unix.SYS_SET_ROBUST_LIST, why: "threads"},
		{nr: unix.SYS_SET_TID_ADDRESS, why: "threads"},
		{nr: unix.SYS_RSEQ, why: "threads"},
		{nr: unix.SYS_FUTEX, why: "locks"},
		{nr: unix.SYS_SCHED_YIELD, why: "locks"},
		{nr: unix.SYS_SCHED_GETAFFINITY, why: "how many CPUs there are"},
		{nr: unix.SYS_GETCPU, why: "unrecorded: allocators, where it is no vDSO's"},
		{nr: unix.SYS_GETTID, why: "threads"},
		{nr: unix.SYS_GETPID, why: "signals to its own threads"},
		{nr: unix.SYS_GETPPID, why: "unrecorded: Go's os package"},
		{nr: unix.SYS_TGKILL, why: "signals to its own threads: Go's preemption, kicks of virtual CPUs, abort", only: is(0, pid)},
		{nr: unix.SYS_KILL, by: Libkrun, why: "the end of its own process: libkrun's watcher of the supervisor", only: is(0, pid)},
		{nr: unix.SYS_RT_SIGACTION, why: "signals"},
		{nr: unix.SYS_RT_SIGPROCMASK, why: "signals, abort"},
		{nr: unix.SYS_RT_SIGRETURN, why: "signals"},
		{nr: unix.SYS_RT_SIGPENDING, by: QEMU, why: "unrecorded: QEMU on KVM"},
		{nr: unix.SYS_RT_SIGTIMEDWAIT, by: QEMU, why: "unrecorded: QEMU on KVM takes its kicks by it"},
		{nr: unix.SYS_RT_SIGSUSPEND, by: QEMU, why: "unrecorded: QEMU's coroutines"},
		{nr: unix.SYS_SIGALTSTACK, why: "signals"},
		{nr: unix.SYS_RESTART_SYSCALL, why: "the kernel, after a stop and continue"},
		{nr: unix.SYS_EXIT, why: "a thread's end"},
		{nr: unix.SYS_EXIT_GROUP, why: "the end"},
		// The runner becomes the VMM by execve, which makes no process and keeps the confinement; QEMU's own
		// filter refuses it from then on.
		{nr: unix.SYS_EXECVE, why: "the runner becomes the VMM"},
		{nr: unix.SYS_EXECVEAT, by: Libkrun, why: "the same by the descriptor of msb's own program", only: &argument{index: 4, set: unix.AT_EMPTY_PATH}},

		// About itself.
		{nr: unix.SYS_PRCTL, why: "names of threads and mappings, QEMU's own filter and memory errors", only: is(0,
			unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_SET_VMA, unix.PR_GET_DUMPABLE, unix.PR_CAPBSET_READ,
			unix.PR_GET_NO_NEW_PRIVS, unix.PR_SET_NO_NEW_PRIVS, unix.PR_GET_SECCOMP, unix.PR_SET_SECCOMP,
			unix.PR_MCE_KILL, unix.PR_SET_TIMERSLACK)},
		{nr: unix.SYS_SECCOMP, by: QEMU, why: "QEMU's own filter: filters only add up"},
		{nr: unix.SYS_PRLIMIT64, why: "its own limits", only: is(0, 0)},
		{nr: unix.SYS_GETRLIMIT, why: "its own limits"},
		{nr: unix.SYS_SETRLIMIT, why: "unrecorded: its own limits, in older C libraries"},
		{nr: unix.SYS_GETRUSAGE, why: "unrecorded: its own usage"},
		{nr: unix.SYS_UNAME, why: "the kernel's version"},
		{nr: unix.SYS_SYSINFO, why: "how much memory there is"},
		{nr: unix.SYS_GETRANDOM, why: "hash seeds, the guest's random device"},
		{nr: unix.SYS_GETUID, why: "the dynamic linker"},
		{nr: unix.SYS_GETEUID, why: "the dynamic linker"},
		{nr: unix.SYS_GETGID, why: "the dynamic linker"},
		{nr: unix.SYS_GETEGID, why: "the dynamic linker"},
		{nr: unix.SYS_CAPGET, by: Libkrun, why: "libcap-ng, which libkrun loads"},
		{nr: unix.SYS_UMASK, by: QEMU, why: "unrecorded: QEMU's start"},
		{nr: unix.SYS_TIMES, by: QEMU, why: "unrecorded: QEMU's statistics"},
	})
}

// ioctls that pass, on descriptors of any kind.
var ioctls = []uint32{
	unix.TCGETS, unix.TCSETS, unix.TCSETSW, unix.TCSETSF, unix.TIOCGWINSZ, // libkrun's console
	unix.TIOCINQ, fionbio, fioclex, fionclex,
	unix.BLKSSZGET, unix.BLKPBSZGET, // QEMU asks files for sectors
}

const (
	fionclex = 0x5450 // FIONCLEX of asm-generic/ioctls.h
	fioclex  = 0x5451 // FIOCLEX
	fionbio  = 0x5421 // FIONBIO: Rust sets non-blocking by it
	// kvmIoctls is the type of every ioctl of linux/kvm.h, in bits 8 to 15. They
	// work on descriptors of /dev/kvm alone, so all of them pass: which ones QEMU
	// and libkrun use changes with each version and each kernel.
	kvmIoctls = 0xae
)
