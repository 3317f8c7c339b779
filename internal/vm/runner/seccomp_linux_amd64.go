package runner

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// callsOfArch are older forms that only this architecture has.
var callsOfArch = []call{
	{nr: unix.SYS_ARCH_PRCTL, why: "thread-local storage"},
	{nr: unix.SYS_OPEN, why: "files, in older libraries"},
	{nr: unix.SYS_STAT, why: "unrecorded: files, in older libraries"},
	{nr: unix.SYS_LSTAT, why: "unrecorded: files, in older libraries"},
	{nr: unix.SYS_NEWFSTATAT, why: "the dynamic linker"},
	{nr: unix.SYS_ACCESS, why: "the dynamic linker"},
	{nr: unix.SYS_READLINK, why: "QEMU's own path"},
	{nr: unix.SYS_POLL, why: "the start of C programs, QEMU's main loop"},
	{nr: unix.SYS_SELECT, why: "unrecorded: older loops"},
	{nr: unix.SYS_EPOLL_CREATE, why: "unrecorded: older loops"},
	{nr: unix.SYS_EPOLL_WAIT, why: "main loops"},
	{nr: unix.SYS_EVENTFD, why: "unrecorded: older loops"},
	{nr: unix.SYS_PIPE, why: "unrecorded: older loops"},
	{nr: unix.SYS_DUP2, why: "unrecorded: older libraries"},
	{nr: unix.SYS_TIME, why: "unrecorded: clocks, where they are no vDSO's"},
}
