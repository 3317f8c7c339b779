package gateway

import (
	"net"
	"sync/atomic"
)

// inspectedConn is a guest's connection in the hands of secretproxy: it begins with what was read already, and
// counts payload both ways.
type inspectedConn struct {
	net.Conn
	first    []byte
	up, down atomic.Int64
	// revoked reports that the flow was ended from this side.
	revoked func() bool
}

// Read implements net.Conn.
func (c *inspectedConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		c.up.Add(int64(n))
		return n, nil
	}
	n, err := c.Conn.Read(p)
	c.up.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (c *inspectedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.down.Add(int64(n))
	return n, err
}

// Close resets a flow that was revoked: whoever serves it closes it as soon as its context ends, which
// to the client would look like the end of an answer.
func (c *inspectedConn) Close() error {
	if r, ok := c.Conn.(interface{ Reset() }); ok && c.revoked() {
		r.Reset()
		return nil
	}
	return c.Conn.Close()
}

// CloseWrite passes the half-close on.
func (c *inspectedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
