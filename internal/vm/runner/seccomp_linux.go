package runner

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A refused call answers with an error and does not end the process. Libraries
// probe for calls and go on without; a path that runs once in a year would end
// a guest that did nothing; and the error gains an attacker nothing, who can
// only try the next one.

// Offsets in struct seccomp_data (linux/seccomp.h).
const (
	seccompNr   = 0
	seccompArch = 4
	seccompArgs = 16 // 8 bytes each; the lower half first: both architectures are little-endian
)

// unknownFrom is the first system call of Linux 5.1. Those from there up that
// are in no list are answered like by a kernel that lacks them, so that C
// libraries take an older way: clone for clone3, openat for openat2. They are
// the same on all architectures. io_uring, pidfd and the new mounts are there
// too, and x32, whose numbers have bit 30 set.
const unknownFrom = 424

// BPF instructions.
const (
	bpfLoad    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	bpfEqual   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	bpfAtLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	bpfAnd     = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	bpfReturn  = unix.BPF_RET | unix.BPF_K
)

func stmt(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }

// skipUnless is a comparison that goes on if it holds and else skips n
// instructions.
func skipUnless(code uint16, k uint32, n int) unix.SockFilter {
	return unix.SockFilter{Code: code, K: k, Jf: uint8(n)}
}

func errnoAction(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// filter builds the BPF program for a VMM as the process self: another architecture's
// calls end the process, those in the lists pass, the rest gets refused, which
// is an error, or whatever a recording wants.
func filter(p *Plan, self int) []unix.SockFilter {
	v := verdicts{refuse: errnoAction, allow: unix.SECCOMP_RET_ALLOW}
	if p.Recording {
		v.refuse = func(unix.Errno) uint32 { return unix.SECCOMP_RET_USER_NOTIF }
	}
	if p.RecordAll {
		v.allow = unix.SECCOMP_RET_USER_NOTIF
	}
	prog := []unix.SockFilter{
		stmt(bpfLoad, seccompArch),
		{Code: bpfEqual, K: auditArch, Jt: 1},
		stmt(bpfReturn, unix.SECCOMP_RET_KILL_PROCESS),
		stmt(bpfLoad, seccompNr),
	}
	if p.RecordAll { // what the runner still does before somebody listens
		for _, nr := range []uint32{unix.SYS_WRITE, unix.SYS_FCNTL, unix.SYS_EXECVE, unix.SYS_FUTEX, unix.SYS_RT_SIGRETURN, unix.SYS_TGKILL} {
			prog = append(prog, skipUnless(bpfEqual, nr, 1), stmt(bpfReturn, unix.SECCOMP_RET_ALLOW))
		}
	}
	for _, c := range calls(self) {
		if c.by == 0 || p.VMM == 0 || c.by == p.VMM {
			prog = append(prog, c.block(v)...)
		}
	}
	prog = append(prog, ioctlBlock(v)...)
	return append(prog,
		// Even in a recording: a C library for which clone3 works never calls
		// clone.
		skipUnless(bpfEqual, unix.SYS_CLONE3, 1), stmt(bpfReturn, errnoAction(unix.ENOSYS)),
		skipUnless(bpfAtLeast, unknownFrom, 1), stmt(bpfReturn, v.refuse(unix.ENOSYS)),
		stmt(bpfReturn, v.refuse(unix.EPERM)),
	)
}

// verdicts are what the filter returns.
type verdicts struct {
	refuse func(unix.Errno) uint32
	allow  uint32
}

// block returns the verdict on one call, and passes over others.
func (c call) block(v verdicts) []unix.SockFilter {
	allow := stmt(bpfReturn, v.allow)
	if c.only == nil {
		return []unix.SockFilter{skipUnless(bpfEqual, c.nr, 1), allow}
	}
	body := []unix.SockFilter{stmt(bpfLoad, seccompArgs+8*uint32(c.only.index))}
	for _, value := range c.only.oneOf {
		body = append(body, skipUnless(bpfEqual, value, 1), allow)
	}
	if bits := c.only.set | c.only.unset; bits != 0 {
		body = append(body, stmt(bpfAnd, bits), skipUnless(bpfEqual, c.only.set, 1), allow)
	}
	body = append(body, stmt(bpfReturn, v.refuse(unix.EPERM)))
	return append([]unix.SockFilter{skipUnless(bpfEqual, c.nr, len(body))}, body...)
}

// ioctlBlock allows those of ioctls and KVM's. Others get ENOTTY, as from a
// file that doesn't know them.
func ioctlBlock(v verdicts) []unix.SockFilter {
	allow := stmt(bpfReturn, v.allow)
	body := make([]unix.SockFilter, 0, 2*len(ioctls)+5)
	body = append(body, stmt(bpfLoad, seccompArgs+8))
	for _, value := range ioctls {
		body = append(body, skipUnless(bpfEqual, value, 1), allow)
	}
	body = append(body, stmt(bpfAnd, 0xff00), skipUnless(bpfEqual, kvmIoctls<<8, 1), allow,
		stmt(bpfReturn, v.refuse(unix.ENOTTY)))
	return append([]unix.SockFilter{skipUnless(bpfEqual, unix.SYS_IOCTL, len(body))}, body...)
}

// refuseSyscalls puts the filter on the calling thread. It needs no_new_privs.
// In a recording it returns the descriptor of the filter's listener.
func refuseSyscalls(p *Plan) (listener int, err error) {
	prog := filter(p, os.Getpid())
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	var flags uintptr
	if p.Recording {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return 0, fmt.Errorf("install the seccomp filter: %w", errno)
	}
	return int(fd), nil
}
