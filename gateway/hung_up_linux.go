package gateway

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp reports whether a socket's connection is over on both ways: its other end was closed or has reset it.
func hungUp(raw syscall.RawConn) (over bool) {
	err := raw.Control(func(fd uintptr) {
		at := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(at, 0)
		over = err == nil && n > 0 && at[0].Revents&unix.POLLHUP != 0
	})
	return over || err != nil // it was closed here
}
