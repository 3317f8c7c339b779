//go:build linux

package agentd

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// hostConn makes the port the one connection that gRPC gets, and remembers who
// ended it.
type hostConn struct {
	io.ReadWriteCloser
	once   sync.Once
	closed chan struct{}
	reason error // valid once closed is closed
}

var _ net.Conn = (*hostConn)(nil)

// errClosedByUs is the reason when gRPC gave the connection up.
var errClosedByUs = errors.New("closed on this side")

func newHostConn(rwc io.ReadWriteCloser) *hostConn {
	return &hostConn{ReadWriteCloser: rwc, closed: make(chan struct{})}
}

func (c *hostConn) end(reason error) {
	c.once.Do(func() { c.reason = reason; close(c.closed) })
}

func (c *hostConn) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	if err != nil {
		c.end(err)
	}
	return n, err
}

func (c *hostConn) Write(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Write(p)
	if err != nil {
		c.end(err)
	}
	return n, err
}

func (c *hostConn) Close() error {
	c.end(errClosedByUs)
	return c.ReadWriteCloser.Close()
}

// hostAddr is the address of both ends, for gRPC's messages only.
type hostAddr struct{}

func (hostAddr) Network() string { return "virtio-console" }
func (hostAddr) String() string  { return "host" }

func (*hostConn) LocalAddr() net.Addr  { return hostAddr{} }
func (*hostConn) RemoteAddr() net.Addr { return hostAddr{} }

// Deadlines are not kept: gRPC sets them for connections that strangers open,
// and the port's other end is the VMM.

func (*hostConn) SetDeadline(time.Time) error      { return nil }
func (*hostConn) SetReadDeadline(time.Time) error  { return nil }
func (*hostConn) SetWriteDeadline(time.Time) error { return nil }

// oneConn is a listener that has one connection to give.
type oneConn struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

var _ net.Listener = (*oneConn)(nil)

func newOneConn(c net.Conn) *oneConn {
	l := &oneConn{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conns <- c
	return l
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (*oneConn) Addr() net.Addr { return hostAddr{} }
