package supervisor

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// idleWatch tells how long nobody has used a sandbox: no client was connected and no job ran.
type idleWatch struct {
	clients atomic.Int64
	since   time.Time // the zero value while it is used
}

// look is told at each look what runs, and gives errIdle once nobody used the sandbox for limit; 0 is no limit.
func (w *idleWatch) look(now time.Time, jobs int, limit time.Duration) error {
	switch {
	case limit == 0:
	case w.clients.Load() > 0 || jobs > 0:
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = now
	case now.Sub(w.since) >= limit:
		return fmt.Errorf("%w for %s", state.ErrIdle, limit)
	}
	return nil
}

// counted counts the connections of lis as clients.
func (w *idleWatch) counted(lis net.Listener) net.Listener { return &countedListener{lis, w} }

type countedListener struct {
	net.Listener
	watch *idleWatch
}

// Accept implements net.Listener.
func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.watch.clients.Add(1)
	return &countedConn{Conn: c, gone: sync.OnceFunc(func() { l.watch.clients.Add(-1) })}, nil
}

type countedConn struct {
	net.Conn
	gone func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.gone()
	return c.Conn.Close()
}
