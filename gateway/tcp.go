package gateway

import (
	"context"
	"errors"
	"net"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy"
)

// dnsPort is where dnsguard answers, whatever the destination (RFC 1035, section 4.2).
const dnsPort = 53

// HandleTCP implements netstack.Handler.
func (g *Gateway) HandleTCP(ctx context.Context, t *netstack.TCPFlow) {
	if t.Dst().Port() == dnsPort {
		g.serveDNS(ctx, t)
		return
	}
	if g.isProxy(t.Dst()) {
		g.serveExplicit(ctx, t)
		return
	}
	f := g.open(egress.TCP, t.Src(), t.Dst())
	switch g.judgeConnect(f) {
	case egress.Allow:
		g.relay(ctx, t, f)
	case egress.Peek:
		g.peek(ctx, t, f)
	case egress.Inspect:
		f.App = inspectedApp(f.verdict)
		g.inspect(ctx, t, f)
	case egress.Deny:
		g.record(f)
		t.Reject()
	}
}

// inspectedApp is what is spoken where the address alone says that a flow must be looked into.
func inspectedApp(v egress.Verdict) egress.App {
	if v.Protocol == policies.HTTP {
		return egress.AppHTTP
	}
	return egress.AppTLS
}

func (g *Gateway) serveDNS(ctx context.Context, t *netstack.TCPFlow) {
	conn, err := t.Accept()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	g.guard.ServeTCP(ctx, conn)
}

// relay dials first, so that the guest sees a refused or dead destination as such.
func (g *Gateway) relay(ctx context.Context, t *netstack.TCPFlow, f *flow) {
	ctx, done := g.admit(ctx, f)
	upstream, err := g.dial(ctx, f)
	if err != nil {
		t.Reject()
		done(0, 0, err)
		return
	}
	guest, err := t.Accept()
	if err != nil {
		done(0, 0, errors.Join(err, upstream.Close()))
		return
	}
	up, down, err := netstack.Relay(ctx, guest, upstream, netstack.RelayOptions{Admit: g.budget.take})
	done(up, down, err)
}

// peek completes the handshake and judges again by what the client says first.
func (g *Gateway) peek(ctx context.Context, t *netstack.TCPFlow, f *flow) {
	guest, err := t.Accept()
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, guest.Reset)
	defer stop()
	g.peekConn(ctx, guest, f)
}

// peekConn judges by what the client says first on a connection that stands.
func (g *Gateway) peekConn(ctx context.Context, guest *netstack.TCPConn, f *flow) {
	first, said := readFirst(guest)
	f.verdict = judgeSaid(func(*egress.Flow) egress.Verdict { return g.judge(f) }, &f.Flow, said)
	conn := &counted{Conn: guest, first: first}
	switch f.verdict.Action {
	case egress.Deny:
		g.record(f)
		refuse(guest, f.App)
	case egress.Inspect:
		g.serveInspected(ctx, conn, f)
	case egress.Allow, egress.Peek:
		g.relayPeeked(ctx, guest, first, f)
	}
}

// relayPeeked sends on what was read, then relays.
func (g *Gateway) relayPeeked(ctx context.Context, guest *netstack.TCPConn, first []byte, f *flow) {
	ctx, done := g.admit(ctx, f)
	dial := g.dial
	if f.App == egress.AppTLS {
		dial = g.dialTLS
	}
	upstream, err := dial(ctx, f)
	if err == nil {
		if err = g.budget.take(len(first)); err == nil {
			_, err = upstream.Write(first)
		}
		if err != nil {
			err = errors.Join(err, upstream.Close())
		}
	}
	if err != nil {
		guest.Reset()
		done(0, 0, err)
		return
	}
	up, down, err := netstack.Relay(ctx, guest, upstream, netstack.RelayOptions{Admit: g.budget.take})
	done(up+int64(len(first)), down, err)
}

// inspect hands a connection over that must be looked into whatever its name.
func (g *Gateway) inspect(ctx context.Context, t *netstack.TCPFlow, f *flow) {
	guest, err := t.Accept()
	if err != nil {
		return
	}
	g.serveInspected(ctx, &counted{Conn: guest}, f)
}

func (g *Gateway) serveInspected(ctx context.Context, conn *counted, f *flow) {
	f.verdict.Action = egress.Inspect
	ctx, done := g.admit(secretproxy.WithFlowID(ctx, f.id), f)
	stop := context.AfterFunc(ctx, func() { resetOrClose(conn.Conn) })
	conn.revoked = func() bool { return ctx.Err() != nil }
	if f.App == egress.AppHTTP {
		g.proxy.ServeHTTP(ctx, conn, f.Flow)
	} else {
		g.proxy.ServeTLS(ctx, conn, f.Flow)
	}
	stop()
	_ = conn.Close()
	done(conn.up.Load(), conn.down.Load(), nil)
}

func resetOrClose(c net.Conn) {
	if r, ok := c.(interface{ Reset() }); ok {
		r.Reset()
		return
	}
	_ = c.Close()
}
