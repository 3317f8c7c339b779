package secretproxy

import (
	"context"
	"net"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/secretproxy/memory"
)

// Requests judges the requests of one connection beside the Judge of the Config, and ends the connection when
// it no longer allows one that is under way.
type Requests interface {
	// Request judges a request. done must be called when it is over.
	Request(f *egress.Flow) (v egress.Verdict, done func())
}

type flowKey struct{}

// flowOf is what the context of a Serve call holds.
type flowOf struct {
	id       uint64
	requests Requests
}

// WithFlow returns a context that ties the audit events of a Serve call to a
// flow, and its requests to whoever judges them; nil judges none.
func WithFlow(ctx context.Context, id uint64, requests Requests) context.Context {
	return context.WithValue(ctx, flowKey{}, flowOf{id, requests})
}

func flowFrom(ctx context.Context) flowOf {
	f, _ := ctx.Value(flowKey{}).(flowOf)
	return f
}

// ServeTLS speaks TLS and HTTP with the guest on conn, which stands at its
// ClientHello, until either side is done. f.Dst is the pinned address that
// requests go to, f.Pinned the names they may be for. It closes conn.
func (p *Proxy) ServeTLS(ctx context.Context, conn net.Conn, f egress.Flow) {
	guest := newGuestConn(conn, f, flowFrom(ctx), ctx.Done())
	guest.isTLS = true
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer guest.Close()
	p.counters.connections.Add(1)
	tlsConn, protocol := p.handshake(ctx, guest)
	if tlsConn == nil {
		return
	}
	var served net.Conn = tlsConn
	if protocol != "h2" {
		served = newStrictConn(p, guest, tlsConn)
	} else {
		held := &memory.Hold{Budget: p.memory}
		defer held.Release()
		if !held.Take(connCost) {
			p.connectionRefused(guest)
			return
		}
	}
	p.serve(guest, served)
}

// ServeHTTP is ServeTLS for plain HTTP. No value is ever placed there: a
// placeholder is a violation wherever it stands.
func (p *Proxy) ServeHTTP(ctx context.Context, conn net.Conn, f egress.Flow) {
	guest := newGuestConn(conn, f, flowFrom(ctx), ctx.Done())
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer guest.Close()
	p.counters.connections.Add(1)
	p.serve(guest, newStrictConn(p, guest, guest))
}

func (p *Proxy) serve(guest *guestConn, served net.Conn) {
	if p.listener.Give(p.ctx, served) != nil {
		return
	}
	<-guest.done
}

// event starts an audit event about the connection.
func (g *guestConn) event(sandbox string) audit.Event {
	return audit.Event{
		Kind: audit.HTTPRequest, Sandbox: sandbox, Flow: g.id, Proto: egress.TCP.String(),
		SrcPort: g.flow.Src.Port(), Dst: g.flow.Dst.Addr(), Port: g.flow.Dst.Port(),
		Names: g.names, SNI: g.name.String(),
	}
}
