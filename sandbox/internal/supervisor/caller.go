package supervisor

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// caller is who started the sandbox. A sandbox without a name ends with it.
type caller struct {
	s        *supervisor
	detached atomic.Bool // the sandbox lives on without it
	mu       sync.Mutex  // held while it is decided whether the caller's end is the sandbox's
}

// watch ends the sandbox when the caller's end of the control socket is closed, which the kernel
// does however the caller went, at any moment of the start too. One with a name lives on once it was ready, unless it is for
// its caller's command alone. It lasts
// as long as the process.
func (c *caller) watch(control *os.File) {
	defer runtime.KeepAlive(control) // its finalizer would close the descriptor under the poll
	for {
		fds := []unix.PollFd{{Fd: int32(control.Fd())}} // no events asked for: only the hang-up is reported
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || fds[0].Revents != 0 {
			c.ended()
			return
		}
	}
}

// leave lets the sandbox live on without its caller.
func (c *caller) leave() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s.ctx.Err() != nil {
		return context.Cause(c.s.ctx)
	}
	c.detached.Store(true)
	return nil
}

// ended ends the sandbox, unless it lives on without its caller. A caller also hangs up when its call breaks off
// because the guest ended: serve then reports why, which ending the sandbox here would hide.
func (c *caller) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if agent := c.s.greeted.Load(); agent != nil && agent.Err() != nil {
		return
	}
	if !c.detached.Load() || c.s.plan.Attached {
		c.s.cancel(errCallerGone)
	}
}
