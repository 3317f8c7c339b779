package supervisor

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// watchCaller ends the sandbox when the caller's end of the control socket is closed, which the kernel
// does however the caller went, at any moment of the start too. One with a name lives on once it was ready, unless it is for
// its caller's command alone. It lasts
// as long as the process.
func (s *supervisor) watchCaller(control *os.File) {
	defer runtime.KeepAlive(control) // its finalizer would close the descriptor under the poll
	for {
		fds := []unix.PollFd{{Fd: int32(control.Fd())}} // no events asked for: only the hang-up is reported
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || fds[0].Revents != 0 {
			s.callerGone()
			return
		}
	}
}
