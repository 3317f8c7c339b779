package runner

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// judge runs the filter on one call. The interpreter reads numbers in the network's order.
func judge(t *testing.T, p *Plan, arch, nr uint32, args ...uint32) uint32 {
	t.Helper()
	const self = 4711
	var prog []bpf.Instruction
	for _, f := range filter(p, self) {
		prog = append(prog, bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K}.Disassemble())
	}
	machine, err := bpf.NewVM(prog)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, seccompArgs+6*8)
	binary.BigEndian.PutUint32(data[seccompNr:], nr)
	binary.BigEndian.PutUint32(data[seccompArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[seccompArgs+8*i:], a)
	}
	verdict, err := machine.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(verdict)
}

// TestI8_ArgumentsAreJudged: some of these say the same refused by the filter and by a file that doesn't know them, so
// that a process can't tell which of the two refused it. The twin of each row is an argument that passes.
func TestI8_ArgumentsAreJudged(t *testing.T) {
	t.Parallel()
	const (
		fiosetown, siocspgrp = 0x8901, 0x8902 // asm-generic/sockios.h
		tiocsetd, tioclinux  = 0x5423, 0x541c
		self, other          = 4711, 4712
	)
	for _, tt := range []struct {
		name    string
		nr      uint32
		before  []uint32 // arguments
		refused []uint32
		passes  uint32
		errno   unix.Errno
	}{
		{
			"ioctl", unix.SYS_IOCTL, []uint32{0},
			[]uint32{unix.TIOCSTI, unix.TIOCSCTTY, unix.TIOCSPGRP, tiocsetd, tioclinux, fiosetown, siocspgrp, unix.FS_IOC_SETFLAGS, unix.FICLONE, unix.LOOP_SET_FD, kvmIoctls, 0xad00, 0xaf00}, unix.TCGETS, unix.ENOTTY,
		},
		{
			"fcntl", unix.SYS_FCNTL, []uint32{0},
			[]uint32{unix.F_SETOWN, unix.F_SETOWN_EX, unix.F_SETSIG, unix.F_SETLEASE, unix.F_NOTIFY, unix.F_GETOWN}, unix.F_SETFL, unix.EPERM,
		},
		{
			"prctl", unix.SYS_PRCTL, nil,
			[]uint32{
				unix.PR_SET_PDEATHSIG, unix.PR_SET_DUMPABLE, unix.PR_SET_KEEPCAPS, unix.PR_SET_SECUREBITS, unix.PR_CAPBSET_DROP, unix.PR_CAP_AMBIENT,
				unix.PR_SET_CHILD_SUBREAPER, unix.PR_SET_PTRACER, unix.PR_SET_MM, unix.PR_SET_SPECULATION_CTRL,
			}, unix.PR_SET_NAME, unix.EPERM,
		},
		{
			"clone", unix.SYS_CLONE, nil,
			[]uint32{
				0, uint32(unix.SIGCHLD), unix.CLONE_VM | unix.CLONE_VFORK, unix.CLONE_THREAD | unix.CLONE_NEWUSER, unix.CLONE_THREAD | unix.CLONE_NEWNS, unix.CLONE_THREAD | unix.CLONE_NEWNET,
				unix.CLONE_THREAD | unix.CLONE_NEWPID, unix.CLONE_THREAD | unix.CLONE_NEWIPC, unix.CLONE_THREAD | unix.CLONE_NEWUTS, unix.CLONE_THREAD | unix.CLONE_NEWCGROUP,
			}, unix.CLONE_THREAD | unix.CLONE_VM, unix.EPERM,
		},
		{"tgkill", unix.SYS_TGKILL, nil, []uint32{0, 1, other, ^uint32(0)}, self, unix.EPERM},
		{"kill", unix.SYS_KILL, nil, []uint32{0, 1, other, ^uint32(0)}, self, unix.EPERM},
		{"prlimit", unix.SYS_PRLIMIT64, nil, []uint32{1, self, other}, 0, unix.EPERM},
	} {
		p := &Plan{VMM: Libkrun}
		for _, a := range tt.refused {
			if got := judge(t, p, auditArch, tt.nr, append(tt.before, a)...); got != errnoAction(tt.errno) {
				t.Errorf("%s %#x: %#x, want it refused with %v", tt.name, a, got, tt.errno)
			}
		}
		if got := judge(t, p, auditArch, tt.nr, append(tt.before, tt.passes)...); got != unix.SECCOMP_RET_ALLOW {
			t.Errorf("%s %#x: %#x, want it let through", tt.name, tt.passes, got)
		}
	}
	if got := judge(t, &Plan{VMM: Libkrun}, auditArch, unix.SYS_IOCTL, 0, kvmIoctls<<8|0x80); got != unix.SECCOMP_RET_ALLOW {
		t.Errorf("KVM_RUN: %#x", got)
	}
	if got := judge(t, &Plan{VMM: QEMU}, auditArch, unix.SYS_KILL, self); got != errnoAction(unix.EPERM) {
		t.Errorf("QEMU's kill of itself, which is libkrun's alone: %#x", got)
	}
}

// TestI8_NumbersOfAnotherTableKill: the numbers of system calls mean others there.
func TestI8_NumbersOfAnotherTableKill(t *testing.T) {
	t.Parallel()
	for _, p := range []Plan{{}, {Recording: true}, {Recording: true, RecordAll: true}} {
		for _, arch := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_X86_64 ^ unix.AUDIT_ARCH_AARCH64 ^ auditArch} {
			if got := judge(t, &p, arch, unix.SYS_READ); got != unix.SECCOMP_RET_KILL_PROCESS {
				t.Errorf("architecture %#x: %#x", arch, got)
			}
		}
		if got := judge(t, &p, auditArch, unix.SYS_CLONE3); got != errnoAction(unix.ENOSYS) {
			t.Errorf("clone3: %#x, want no such call, even in a recording", got)
		}
	}
	if got := judge(t, &Plan{}, auditArch, unix.SYS_READ); got != unix.SECCOMP_RET_ALLOW {
		t.Errorf("read: %#x", got)
	}
	for nr, want := range map[uint32]unix.Errno{unknownFrom - 1: unix.EPERM, unknownFrom: unix.ENOSYS, 1000: unix.ENOSYS, unix.SYS_FCHMODAT: unix.EPERM, unix.SYS_SETXATTR: unix.EPERM} {
		if got := judge(t, &Plan{}, auditArch, nr); got != errnoAction(want) {
			t.Errorf("call %d: %#x, want %v", nr, got, want)
		}
	}
}

// TestI8_LandlockHandlesAllItKnows: a right that isn't handled is not refused. The versions are those of
// Documentation/userspace-api/landlock.rst.
func TestI8_LandlockHandlesAllItKnows(t *testing.T) {
	t.Parallel()
	for abi, want := range map[int]unix.LandlockRulesetAttr{
		1: {Handled_access_fs: 1<<13 - 1},
		2: {Handled_access_fs: 1<<14 - 1},
		3: {Handled_access_fs: 1<<15 - 1},
		4: {Handled_access_fs: 1<<15 - 1, Handled_access_net: 3},
		5: {Handled_access_fs: 1<<16 - 1, Handled_access_net: 3},
		6: {Handled_access_fs: 1<<16 - 1, Handled_access_net: 3, Scoped: 3},
		7: {Handled_access_fs: 1<<16 - 1, Handled_access_net: 3, Scoped: 3},
	} {
		if got := handled(abi); got != want {
			t.Errorf("version %d: %#v, want %#v", abi, got, want)
		}
	}
}
