package runner

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification and response are struct seccomp_notif and seccomp_notif_resp of
// linux/seccomp.h.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type response struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// follow takes the listener out of the process and lets every call go on, until
// the process is gone.
func (r *Recording) follow(pid, listener int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, listener, 0)
	if err != nil {
		return fmt.Errorf("record: take the filter's listener: %w", err)
	}
	go r.serve(fd)
	return nil
}

func (r *Recording) serve(fd int) {
	defer unix.Close(fd)
	for {
		// POLLHUP: nobody is left who has the filter.
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); errors.Is(err, unix.EINTR) {
			continue
		}
		if ready[0].Revents&unix.POLLIN == 0 {
			return
		}
		var n notification
		if ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)) != 0 {
			continue // it was killed meanwhile
		}
		r.add(Refused{uint32(n.nr), n.argument()})
		_ = ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND,
			unsafe.Pointer(&response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}))
	}
}

func (n *notification) argument() uint32 {
	if n.nr == unix.SYS_IOCTL {
		return uint32(n.args[1])
	}
	for _, c := range calls(0) {
		if c.nr == uint32(n.nr) && c.only != nil {
			return uint32(n.args[c.only.index])
		}
	}
	return 0
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
	return errno
}
