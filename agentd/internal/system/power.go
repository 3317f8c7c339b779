//go:build linux

package system

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// trimTime bounds the trim at the end: the host waits a little longer for a
// machine with a disk before it kills it.
const trimTime = 2 * time.Second

// Leave writes everything back and leaves the machine. There is no ACPI: the
// VMM takes a reboot for the end (QEMU by -no-reboot).
func Leave() error {
	unix.Sync()
	trimmed := make(chan struct{})
	go func() { defer close(trimmed); settleVolumes(); trim(upperDir) }()
	select {
	case <-trimmed:
	case <-time.After(trimTime):
	}
	return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

// trim gives the free space of a file system back to the host: what the mount's
// discard had not got to yet, or lost when the machine was killed before. A root
// in memory has no such command.
func trim(dir string) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	// struct fstrim_range of linux/fs.h: start, length, least extent.
	all := [3]uint64{0, 1<<64 - 1, 0}
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fitrim, uintptr(unsafe.Pointer(&all))) // a file system that isn't trimmed only takes more space
}

// fitrim is FITRIM of linux/fs.h, _IOWR('X', 121, struct fstrim_range).
const fitrim = 0xc0185879

// KillAll signals every process but PID 1, as PID 1 alone may.
func KillAll(sig unix.Signal) { _ = unix.Kill(-1, sig) } // none left is fine
