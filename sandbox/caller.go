package sandbox

import (
	"errors"
	"net"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// watchCaller ends the sandbox when the caller's end of the control socket is closed, which the kernel
// does however the caller went, at any moment of the start too. One with a name lives on once it was ready. It lasts
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
			if !s.grown.Load() {
				s.cancel(errCallerGone)
			}
			return
		}
	}
}

// callerListener is a net.Listener with one connection, the caller's.
type callerListener struct {
	conn   chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr
}

var _ net.Listener = (*callerListener)(nil)

func newCallerListener(c net.Conn) *callerListener {
	l := &callerListener{conn: make(chan net.Conn, 1), closed: make(chan struct{}), addr: c.LocalAddr()}
	l.conn <- c
	return l
}

// Accept implements net.Listener.
func (l *callerListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *callerListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *callerListener) Addr() net.Addr { return l.addr }
