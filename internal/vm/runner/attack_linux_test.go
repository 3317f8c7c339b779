package runner

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// victims are what a VMM that was broken out of goes for: the user's other
// files and processes.
type victims struct {
	File string // of the user's, not granted
	PID  int    // a process of the user's; not there in a pid namespace
	Shm  int    // the key of a segment of shared memory
	Disk string // granted for writing
}

// attack is one thing that a broken-out VMM tries. Nil means that it worked.
type attack struct {
	name string
	try  func(v *victims) error
	// filterOnly marks those that only the filter prevents where there are no
	// namespaces: with a filter that refuses nothing they work.
	filterOnly bool
}

func raw(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

func text(s string) uintptr { return uintptr(unsafe.Pointer(&append([]byte(s), 0)[0])) }

// child reports a process that should not have been made, and ends it.
func child(pid uintptr, errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return nil
}

var attacks = []attack{
	// Files of the user's: Landlock doesn't cover these.
	{"chmod", func(v *victims) error { return unix.Chmod(v.File, 0o777) }, true},
	{"fchmodat", func(v *victims) error { return unix.Fchmodat(unix.AT_FDCWD, v.File, 0o777, 0) }, true},
	{"chown", func(v *victims) error { return unix.Chown(v.File, os.Getuid(), os.Getgid()) }, true},
	{"lchown", func(v *victims) error { return unix.Lchown(v.File, os.Getuid(), os.Getgid()) }, true},
	{"utimensat", func(v *victims) error { return unix.UtimesNanoAt(unix.AT_FDCWD, v.File, make([]unix.Timespec, 2), 0) }, true},
	{"utimes", func(v *victims) error { return unix.Utimes(v.File, make([]unix.Timeval, 2)) }, true},
	{"setxattr", func(v *victims) error { return unix.Setxattr(v.File, "user.x", []byte("y"), 0) }, false},
	{"removexattr", func(v *victims) error { return unix.Removexattr(v.File, "user.x") }, false},
	{"read", func(v *victims) error { _, err := os.ReadFile(v.File); return err }, false},
	{"unlink", func(v *victims) error { return unix.Unlink(v.File) }, false},
	{"rename", func(v *victims) error { return unix.Rename(v.File, v.File+".moved") }, false},
	{"link", func(v *victims) error { return unix.Link(v.File, v.Disk+".link") }, false},
	{"symlink", func(v *victims) error { return unix.Symlink(v.File, v.Disk+".symlink") }, false},
	{"mkdir", func(v *victims) error { return unix.Mkdir(filepath.Join(filepath.Dir(v.Disk), "made"), 0o700) }, false},
	{"mknod", func(v *victims) error { return unix.Mknod(v.Disk+".fifo", unix.S_IFIFO|0o600, 0) }, false},
	{"truncate", func(v *victims) error { return unix.Truncate(v.File, 0) }, false},
	{"name_to_handle_at", func(v *victims) error { _, _, err := unix.NameToHandleAt(unix.AT_FDCWD, v.File, 0); return err }, false},
	{"inotify", func(*victims) error { _, err := unix.InotifyInit1(0); return err }, true},
	{"execute another program", func(*victims) error { return unix.Exec("/bin/true", []string{"true"}, nil) }, false},
	{"mount", func(*victims) error { return unix.Mount("x", "/", "tmpfs", 0, "") }, false},
	{"chroot", func(*victims) error { return unix.Chroot("/") }, false},
	// Its own disk beyond its size, which would fill the host's.
	{"grow by ftruncate", func(v *victims) error { return unix.Truncate(v.Disk, 1<<40) }, false},
	{"grow by writing", func(v *victims) error {
		return growing(v, func(fd int) error { _, err := unix.Pwrite(fd, []byte("x"), 1<<30); return err })
	}, false},
	{"grow by fallocate", func(v *victims) error {
		return growing(v, func(fd int) error { return unix.Fallocate(fd, 0, 1<<30, 4096) })
	}, false},
	{"lock memory", func(*victims) error { return unix.Mlock(make([]byte, 1<<20)) }, false},
	// Other processes.
	// Nobody has this number: the filter says EPERM, the kernel ESRCH.
	{"kill by number", func(*victims) error { return wants(unix.EPERM, unix.Kill(nobody, unix.SIGCONT)) }, true},
	{"tgkill by number", func(*victims) error { return wants(unix.EPERM, unix.Tgkill(nobody, nobody, unix.SIGCONT)) }, true},
	{"kill", func(v *victims) error { return unix.Kill(v.PID, unix.SIGCONT) }, false},
	{"kill the group", func(*victims) error { return unix.Kill(0, unix.SIGCONT) }, true},
	{"kill everything", func(*victims) error { return unix.Kill(-1, 0) }, false},
	{"tkill", func(v *victims) error { return raw(unix.SYS_TKILL, uintptr(v.PID), uintptr(unix.SIGCONT)) }, false},
	{"tgkill", func(v *victims) error { return unix.Tgkill(v.PID, v.PID, unix.SIGCONT) }, false},
	{"rt_sigqueueinfo", func(v *victims) error {
		info := [128]byte{}
		return raw(unix.SYS_RT_SIGQUEUEINFO, uintptr(v.PID), uintptr(unix.SIGCONT), uintptr(unsafe.Pointer(&info)))
	}, false},
	{"pidfd_open", func(v *victims) error { _, err := unix.PidfdOpen(v.PID, 0); return err }, true},
	{"F_SETOWN", func(v *victims) error { _, err := unix.FcntlInt(1, unix.F_SETOWN, v.PID); return err }, true},
	{"F_SETSIG", func(*victims) error { _, err := unix.FcntlInt(1, unix.F_SETSIG, int(unix.SIGKILL)); return err }, true},
	{"FIOSETOWN", func(v *victims) error {
		pid := int32(v.PID)
		return raw(unix.SYS_IOCTL, FirstFileFD, 0x8901, uintptr(unsafe.Pointer(&pid)))
	}, true},
	{"prlimit", func(v *victims) error {
		return unix.Prlimit(v.PID, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}, nil)
	}, true},
	{"setpriority", func(v *victims) error { return unix.Setpriority(unix.PRIO_PROCESS, v.PID, 19) }, false},
	{"sched_setaffinity", func(v *victims) error {
		var set unix.CPUSet
		set.Set(0)
		return unix.SchedSetaffinity(v.PID, &set)
	}, false},
	{"ptrace", func(v *victims) error { return unix.PtraceAttach(v.PID) }, false},
	{"process_vm_readv", func(v *victims) error {
		b := [1]byte{}
		_, err := unix.ProcessVMReadv(v.PID, []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: 4096, Len: 1}}, 0)
		return err
	}, false},
	{"clear the parent-death signal", func(*victims) error { return unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0) }, true},
	{"become dumpable", func(*victims) error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) }, true},
	// New processes.
	{"fork", func(*victims) error {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		return child(pid, errno)
	}, true},
	{"clone3", func(*victims) error {
		args := [11]uint64{4: uint64(unix.SIGCHLD)}
		pid, _, errno := unix.RawSyscall(435, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
		return child(pid, errno)
	}, false},
	{"clone a namespace", func(*victims) error {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		return child(pid, errno)
	}, false},
	{"a thread in a namespace", func(*victims) error {
		// The kernel refuses it only for want of a capability, or after copying half of the thread.
		_, _, errno := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_THREAD|unix.CLONE_SIGHAND|unix.CLONE_VM|unix.CLONE_NEWUSER, 0, 0, 0, 0, 0)
		return wants(unix.EPERM, orWorked(errno))
	}, false},
	{"unshare", func(*victims) error { return unix.Unshare(unix.CLONE_NEWUTS | unix.CLONE_NEWUSER) }, false},
	{"setns", func(*victims) error { return unix.Setns(0, 0) }, false},
	// IPC by key or name.
	{"shmget", func(v *victims) error { return raw(unix.SYS_SHMGET, uintptr(v.Shm), 0, 0) }, true},
	{"shmat", func(*victims) error { return raw(unix.SYS_SHMAT, 1<<30, 0, 0) }, false},
	{"msgget", func(*victims) error { return raw(unix.SYS_MSGGET, unix.IPC_PRIVATE, 0o600) }, false},
	{"semget", func(*victims) error { return raw(unix.SYS_SEMGET, unix.IPC_PRIVATE, 1, 0o600) }, false},
	{"mq_open", func(*victims) error { return raw(unix.SYS_MQ_OPEN, text("msb"), unix.O_RDWR, 0, 0) }, false},
	// The network, and sockets of the host's services.
	{"socket(inet)", func(*victims) error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0); return err }, true},
	{"socket(unix)", func(*victims) error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0); return err }, true},
	{"socket(netlink)", func(*victims) error { _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0); return err }, true},
	{"socketpair", func(*victims) error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0); return err }, true},
	{"connect", func(*victims) error { return refusedAs(unix.Connect(FirstFileFD, &unix.SockaddrUnix{Name: "/x"})) }, false},
	{"bind", func(*victims) error { return unix.Bind(FirstFileFD, &unix.SockaddrUnix{Name: "@msb-probe"}) }, false},
	{"listen", func(*victims) error { return unix.Listen(FirstFileFD, 1) }, false},
	// Landlock covers these too.
	{"connect by TCP", func(*victims) error { return byTCP(unix.Connect) }, false},
	{"bind by TCP", func(*victims) error { return byTCP(unix.Bind) }, false},
	// Other ways into the kernel.
	{"x32", func(*victims) error { return wants(unix.ENOSYS, raw(x32Bit|unix.SYS_GETPID)) }, false},
	{"io_uring", func(*victims) error {
		p := [128]byte{}
		return raw(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&p)))
	}, false},
	{"memfd_create", func(*victims) error { _, err := unix.MemfdCreate("x", 0); return err }, true},
	{"userfaultfd", func(*victims) error { return raw(unix.SYS_USERFAULTFD, 1) }, false},
	{"bpf", func(*victims) error { return raw(unix.SYS_BPF, 0, 0, 0) }, false},
	{"perf_event_open", func(*victims) error { return raw(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0) }, false},
	{"add_key", func(*victims) error {
		_, err := unix.AddKey("user", "msb", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
		return err
	}, false},
	{"keyctl", func(*victims) error {
		_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
		return err
	}, false},
	{"personality", func(*victims) error { return raw(unix.SYS_PERSONALITY, 0xffffffff) }, true},
	{"landlock", func(*victims) error { return raw(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1) }, false},
	{"sethostname", func(*victims) error { return unix.Sethostname([]byte("x")) }, false},
	{"clock_settime", func(*victims) error { return unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{}) }, false},
	{"setuid", func(*victims) error { return raw(unix.SYS_SETUID, uintptr(os.Getuid())) }, true},
	{"setsid", func(*victims) error { return raw(unix.SYS_SETSID) }, false},
	{"setpgid", func(*victims) error { return raw(unix.SYS_SETPGID, 0, 0) }, false},
	{"a number of tomorrow", func(*victims) error { return wants(unix.ENOSYS, raw(1000)) }, false},
}

func orWorked(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// nobody is above any kernel's largest process id (PID_MAX_LIMIT is 1<<22).
const nobody = 1 << 23

// growing opens the disk and tries to make it larger.
func growing(v *victims, grow func(fd int) error) error {
	fd, err := unix.Open(v.Disk, unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return grow(fd)
}

// x32Bit marks the calls of x32, a second table of the same architecture.
const x32Bit = 1 << 30

// byTCP does something with a socket of TCP and a port of this machine's, where nobody listens.
func byTCP(do func(fd int, at unix.Sockaddr) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return wants(unix.EACCES, do(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
}

// refusedAs tells a refusal of connect by the filter from the socket's own, which is connected already.
func refusedAs(err error) error { return wants(unix.EPERM, err) }

// wants is nil, which means that an attack worked, unless it failed as it should.
func wants(want unix.Errno, err error) error {
	if errors.Is(err, want) {
		return err
	}
	return nil
}

// attackAll tries everything, on one thread: some attacks would change the thread.
func attackAll(v *victims) map[string]string {
	runtime.LockOSThread()
	results := make(map[string]string)
	for _, a := range attacks {
		results[a.name] = errText(a.try(v))
	}
	return results
}
