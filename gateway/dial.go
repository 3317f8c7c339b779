package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// errNoBuiltin answers what a built-in service does not speak.
var errNoBuiltin = errors.New("the built-in echo service speaks TLS on TCP only")

// dial opens the host's side of a flow: to the operator's target where [hosts] leads there, else to exactly
// the address that was judged, or by the upstream proxy.
func (g *Gateway) dial(ctx context.Context, j session.Judged, via bool) (net.Conn, error) {
	network := j.Flow.Proto.String()
	switch {
	case ctx.Err() != nil: // a reload may have ended it since the verdict
		return nil, context.Cause(ctx)
	case j.Flow.Mapped:
		return dialTarget(ctx, g, network, j.Target, j.Flow.Dst.Port())
	case via:
		return dialVia(ctx, g, g.rules.Load().Via, j.ViaName(), j.Flow.Dst)
	}
	return g.dialAddr(ctx, network, j.Flow.Dst, j.Verdict.Reach(j.Flow.Dst))
}

func dialTarget(ctx context.Context, g *Gateway, network string, t policies.Target, port uint16) (net.Conn, error) {
	if t.Builtin != "" {
		if network != "tcp" {
			return nil, errNoBuiltin
		}
		return g.echo.Dial(ctx)
	}
	if t.Sandbox != "" {
		return g.dialSandbox(ctx, network, t)
	}
	dst := t.Addr
	if dst.Port() == 0 {
		dst = netip.AddrPortFrom(dst.Addr(), port)
	}
	return g.dialAddr(ctx, network, dst, egress.ReachTarget)
}

// dialAddr is the one place where the gateway opens sockets for a guest. far is the class of
// addresses beside the public ones that dst, and only dst, may be in. The fuse looks at the address that goes to the kernel (invariant 5),
// and again when the socket is connected: dst may have become the host's meanwhile. No byte was sent then.
func (g *Gateway) dialAddr(ctx context.Context, network string, dst netip.AddrPort, far egress.Reach) (net.Conn, error) {
	reach := func(a netip.AddrPort) egress.Reach {
		if a == dst {
			return far
		}
		return egress.ReachPublic
	}
	if network == "tcp" { // of UDP, each datagram is counted
		if err := g.budget.takePacket(0); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	fuse := egress.Fuse(g.classifier, reach)
	conn, err := g.dialFused(ctx, network, dst.String(), fuse)
	if err != nil {
		return nil, err
	}
	if err := fuse(ctx, network, dst.String(), nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

type fuseFunc = func(ctx context.Context, network, address string, _ syscall.RawConn) error

func (g *Gateway) dialFused(ctx context.Context, network, addr string, fuse fuseFunc) (net.Conn, error) {
	if g.cfg.Dialer == nil {
		return (&net.Dialer{ControlContext: fuse}).DialContext(ctx, network, addr)
	}
	if err := fuse(ctx, network, addr, nil); err != nil {
		return nil, err
	}
	return g.cfg.Dialer.DialContext(ctx, network, addr)
}

// dialResolver is dnsguard's way to its servers, which the operator chose: no fuse, but the tests'
// internet where there is one.
func (g *Gateway) dialResolver() func(ctx context.Context, network, addr string) (net.Conn, error) {
	switch {
	case g.inbound.isPod():
		return g.inbound.dialResolver
	case g.cfg.Dialer == nil:
		return nil
	}
	return g.cfg.Dialer.DialContext
}

// errOwnResolver keeps a guest from answering its own questions, and so from choosing the addresses of names (invariant 6).
var errOwnResolver = errors.New("the resolver's address is the pod's own, on which only its guest can listen: name another in the pod's resolv.conf, or in dns.servers")

// dialResolver refuses addresses of the pod itself: ports on them lead to the guest.
func (i *inbound) dialResolver(ctx context.Context, network, addr string) (net.Conn, error) {
	outside := func(_ context.Context, network, address string, _ syscall.RawConn) error {
		dst, err := netip.ParseAddrPort(address)
		proto := egress.UDP
		if strings.HasPrefix(network, "tcp") {
			proto = egress.TCP
		}
		if err == nil && (dst.Addr().IsLoopback() || i.g.owns(proto, dst)) {
			err = errOwnResolver
		}
		return err
	}
	return i.g.dialFused(ctx, network, addr, outside)
}

// dialInspected implements secretproxy.DialFunc. The address is judged again, because a kept connection may be
// opened again long after its flow was admitted.
func (g *Gateway) dialInspected(ctx context.Context, name hostname.Name, dst netip.AddrPort) (net.Conn, error) {
	return g.reopen(ctx, name, dst, false)
}

// dialInspectedTLS is dialInspected for servers that use TLS.
func (g *Gateway) dialInspectedTLS(ctx context.Context, name hostname.Name, dst netip.AddrPort) (net.Conn, error) {
	return g.reopen(ctx, name, dst, true)
}

// reopen dials for the proxy. What it writes is counted here; a relay asks the budget by itself.
func (g *Gateway) reopen(ctx context.Context, name hostname.Name, dst netip.AddrPort, tls bool) (net.Conn, error) {
	s, step := session.Reopen(g.rules.Load(), g.guard, name, dst, tls)
	j := s.Judged()
	if step.Action != session.Dial {
		return nil, fmt.Errorf("%w: %s", errDenied, j.Verdict.Message())
	}
	conn, err := g.dial(ctx, j, step.Via)
	if err != nil {
		return nil, err
	}
	return g.budget.wrap(conn), nil
}

var errDenied = errors.New("denied by policy")
