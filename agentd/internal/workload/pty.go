//go:build linux

package workload

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Size of a terminal, in characters.
type Size struct{ Rows, Cols uint16 }

// ttyGroup is the group that owns terminals by convention (devpts gid=5).
const ttyGroup = 5

// openPTY returns a master that Go's poller knows and its slave.
func openPTY(pts *os.File, size Size, owner uint32) (master *os.File, slave int, err error) {
	at, name := unix.AT_FDCWD, "/dev/ptmx"
	if pts != nil {
		at, name = int(pts.Fd()), "ptmx"
	}
	fd, err := unix.Openat(at, name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		master.Close()
		return nil, -1, fmt.Errorf("unlock the terminal: %w", err)
	}
	slave, err = openPeer(fd)
	if err != nil {
		master.Close()
		return nil, -1, fmt.Errorf("open the terminal: %w", err)
	}
	_ = unix.Fchown(slave, int(owner), ttyGroup) // a terminal that stays root's still works by its descriptor
	if size != (Size{}) {
		_ = Resize(master, size) // a terminal without a size works
	}
	return master, slave, nil
}

// openPeer opens the slave through its master, whatever /dev/pts shows
// (TIOCGPTPEER takes the open flags as its argument; ioctl_tty(2)).
func openPeer(master int) (int, error) {
	flags := uintptr(unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC)
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// Resize sets the window size and signals the foreground group.
func Resize(master *os.File, size Size) error {
	raw, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
	if err != nil {
		return err
	}
	return setErr
}
