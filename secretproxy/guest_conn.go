package secretproxy

import (
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/secretproxy/memory"
)

// connKey is the context key under which a request finds its guestConn.
type connKey struct{}

// guestConn is the guest's connection below TLS, with what is known of it.
type guestConn struct {
	net.Conn
	flow  egress.Flow
	names []string // of flow.Pinned, as audit events have them
	flowOf
	// name is the SNI once the handshake is over; the zero Name on plain HTTP
	// and for a literal address.
	name  hostname.Name
	isTLS bool
	// handled is set while net/http has a handler answer a request of HTTP/1.
	handled atomic.Bool

	uploads int // requests with a body under way, over HTTP/2
	mu      sync.Mutex

	once    sync.Once
	done    chan struct{}
	revoked <-chan struct{} // closed when its flow ends
}

// newGuestConn makes the connection of a flow that ends with revoked.
func newGuestConn(c net.Conn, f egress.Flow, of flowOf, revoked <-chan struct{}) *guestConn {
	f.Pinned = slices.Clone(f.Pinned)
	names := make([]string, 0, len(f.Pinned))
	for _, n := range f.Pinned {
		names = append(names, n.String())
	}
	return &guestConn{Conn: c, flow: f, names: names, flowOf: of, done: make(chan struct{}), revoked: revoked}
}

// Close implements net.Conn, and wakes the Serve call that waits for it.
func (g *guestConn) Close() error {
	err := g.Conn.Close()
	g.once.Do(func() { close(g.done) })
	return err
}

// scheme is that of the URLs which the guest asks for here.
func (g *guestConn) scheme() string {
	if g.isTLS {
		return "https"
	}
	return "http"
}

// pinned reports whether the name may be asked for on this connection.
func (g *guestConn) pinned(name hostname.Name) bool {
	return slices.Contains(g.flow.Pinned, name)
}

// dst is the pinned address that requests of this connection go to.
func (g *guestConn) dst() netip.AddrPort { return g.flow.Dst }

// guestOf finds the guestConn below what an http.Server holds.
func guestOf(c net.Conn) *guestConn {
	switch c := c.(type) {
	case *guestConn:
		return c
	case *strictConn:
		return c.guest
	case *tls.Conn:
		return guestOf(c.NetConn())
	}
	return nil
}

// upload takes the room for bodies that wait on an HTTP/2 connection, once for all of them.
func (g *guestConn) upload(b *memory.Budget) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.uploads == 0 && !b.Take(uploadWindow) {
		return false
	}
	g.uploads++
	return true
}

// uploaded gives the room back when the last of them has ended.
func (g *guestConn) uploaded(b *memory.Budget) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.uploads--; g.uploads == 0 {
		b.Give(uploadWindow)
	}
}
