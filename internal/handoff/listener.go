package handoff

import (
	"context"
	"net"
	"sync"
)

// Listener is a net.Listener that is fed by Give.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr
}

var _ net.Listener = (*Listener)(nil)

// New returns a Listener that reports addr as its address.
func New(addr net.Addr) *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{}), addr: addr}
}

// Of returns a Listener whose only connection is c.
func Of(c net.Conn) *Listener {
	l := &Listener{conns: make(chan net.Conn, 1), closed: make(chan struct{}), addr: c.LocalAddr()}
	l.conns <- c
	return l
}

// Give waits until a server accepts c. It returns net.ErrClosed once the
// listener is closed and ctx's error once ctx is done; c is the caller's then.
func (l *Listener) Give(ctx context.Context, c net.Conn) error {
	select {
	case l.conns <- c:
		return nil
	case <-l.closed:
		return net.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener; connections that were accepted stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.addr }
