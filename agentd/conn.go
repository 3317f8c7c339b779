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
