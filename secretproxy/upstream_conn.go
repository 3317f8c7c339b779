package secretproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/msb-project/msb/secretproxy/memory"
)

// upstreamConn is a connection to a server, which counts until it is closed.
type upstreamConn struct {
	net.Conn
	closed func()
}

// dial connects to a server, and closes unused connections for that.
func (u *upstreams) dial(ctx context.Context, up *upstream, open DialFunc) (net.Conn, error) {
	u.trim()
	c, err := open(ctx, up.key.name, up.key.dst)
	if err != nil {
		return nil, err
	}
	u.open.Add(1)
	up.open.Add(1)
	return &upstreamConn{c, sync.OnceFunc(func() {
		u.open.Add(-1)
		up.open.Add(-1)
	})}, nil
}

// Close implements net.Conn.
func (c *upstreamConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// CloseWrite is for those who look for it, as shutWrite does.
func (c *upstreamConn) CloseWrite() error { return shutWrite(c.Conn) }

// shutWrite ends this side of a connection that was upgraded, or all of it.
func shutWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// dialTLS connects to a server and verifies it. net/http needs to see the connection as it is to speak HTTP/2 on it.
func (u *upstreams) dialTLS(ctx context.Context, up *upstream, cfg *tls.Config) (net.Conn, error) {
	raw, err := u.dial(ctx, up, u.proxy.cfg.DialTLS)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, cfg)
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	if conn.ConnectionState().NegotiatedProtocol == "h2" {
		return conn, nil
	}
	return &headConn{Conn: conn, budget: u.proxy.memory}, nil
}

// maxHeadsCost bounds what the hints and the head of one answer take: 64 KiB of the shortest fields are 3 MiB.
const maxHeadsCost = 4 << 20

// errHeads ends an answer that is all hints.
var errHeads = errors.New("the hints and the head of an answer take more than 4 MiB")

// headConn is an HTTP/1 connection to a server. It takes the room for the head of an answer as its bytes come: net/http
// makes up to 16 times as much of them before the head ends (attack: 150 answers whose heads don't end).
type headConn struct {
	net.Conn
	budget *memory.Budget
	head   atomic.Pointer[memory.Hold] // nil but from a request to the end of its answer's head
	fault  atomic.Pointer[error]       // why Read ended a head
}

// Read implements net.Conn.
func (c *headConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	held := c.head.Load()
	if held == nil {
		return n, err
	}
	taken := held.Take(2*int64(n) + 2*headCost*int64(bytes.Count(b[:n], []byte("\n"))))
	switch {
	case c.head.Load() != held: // what ended the head came before
		return n, err
	case !taken:
		err = memory.ErrFull
	case held.Size() > maxHeadsCost:
		err = errHeads
	default:
		return n, err
	}
	c.fault.Store(&err)
	return 0, err
}

// CloseWrite is for those who look for it, as shutWrite does.
func (c *headConn) CloseWrite() error { return shutWrite(c.Conn) }

// beginHead has what the server sends from now on counted.
func (ex *exchange) beginHead(c net.Conn) {
	if conn, ok := c.(*headConn); ok {
		conn.head.Store(&memory.Hold{Budget: conn.budget})
		ex.conn = conn
	}
}

// roundTrip sends a request over its server's transport, whose parser may say of a head that ends early that it is
// malformed.
func (ex *exchange) roundTrip(r *http.Request) (*http.Response, error) {
	resp, err := ex.up.transport.RoundTrip(r)
	if err != nil && ex.conn != nil {
		if fault := ex.conn.fault.Load(); fault != nil {
			return nil, *fault
		}
	}
	return resp, err
}

// endHead gives the room back, when that for the whole head is taken or nothing more is read of it.
func (ex *exchange) endHead() {
	if ex.conn != nil {
		ex.conn.head.Swap(nil).Release()
		ex.conn = nil
	}
}
