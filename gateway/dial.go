package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// errNoBuiltin answers what a built-in service does not speak.
var errNoBuiltin = errors.New("the built-in echo service speaks TLS on TCP only")

// dial opens the host's side of f: to the operator's target where [hosts] leads there, else to exactly
// the address that was judged.
func (g *Gateway) dial(ctx context.Context, f *flow) (net.Conn, error) {
	if f.Mapped {
		return g.dialTarget(ctx, f.Proto.String(), f.mapping.Target, f.Dst.Port())
	}
	return g.dialAddr(ctx, f.Proto.String(), f.Dst, f.verdict.Special)
}

func (g *Gateway) dialTarget(ctx context.Context, network string, t policies.Target, port uint16) (net.Conn, error) {
	if t.Builtin != "" {
		if network != "tcp" {
			return nil, errNoBuiltin
		}
		return g.echo.Dial(ctx)
	}
	dst := t.Addr
	if dst.Port() == 0 {
		dst = netip.AddrPortFrom(dst.Addr(), port)
	}
	return g.dialAddr(ctx, network, dst, true)
}

// dialAddr is the one place where the gateway opens sockets for a guest. special lets dst, and only
// dst, be an address that isn't public. The fuse looks at dst here, and once more in net.Dialer at the
// address that goes to the kernel (invariant 5).
func (g *Gateway) dialAddr(ctx context.Context, network string, dst netip.AddrPort, special bool) (net.Conn, error) {
	allow := func(a netip.AddrPort) bool { return special && a == dst }
	if err := egress.CheckDial(g.classifier, dst, allow); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return g.hostDialer(allow).DialContext(ctx, network, dst.String())
}

func (g *Gateway) hostDialer(allow func(netip.AddrPort) bool) Dialer {
	if g.cfg.Dialer != nil {
		return g.cfg.Dialer
	}
	return &net.Dialer{ControlContext: egress.Fuse(g.classifier, allow)}
}

// dialResolver is dnsguard's way to its servers, which the operator chose: no fuse, but the tests'
// internet where there is one.
func (g *Gateway) dialResolver() func(ctx context.Context, network, addr string) (net.Conn, error) {
	if g.cfg.Dialer == nil {
		return nil
	}
	return g.cfg.Dialer.DialContext
}

// dialInspected implements secretproxy.DialFunc. The address is judged again, because a kept
// connection may be opened anew long after its flow was admitted.
func (g *Gateway) dialInspected(ctx context.Context, name hostname.Name, dst netip.AddrPort) (net.Conn, error) {
	f, err := g.reopen(name, dst)
	if err != nil {
		return nil, err
	}
	return g.metered(g.dial(ctx, f))
}

// metered counts what the proxy writes; a relay asks the budget by itself.
func (g *Gateway) metered(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return g.budget.wrap(conn), nil
}

// dialInspectedTLS is dialInspected for servers that are spoken TLS with.
func (g *Gateway) dialInspectedTLS(ctx context.Context, name hostname.Name, dst netip.AddrPort) (net.Conn, error) {
	f, err := g.reopen(name, dst)
	if err != nil {
		return nil, err
	}
	return g.metered(g.dialTLS(ctx, f))
}

// reopen judges a connection of the proxy's own.
func (g *Gateway) reopen(name hostname.Name, dst netip.AddrPort) (*flow, error) {
	f := g.open(egress.TCP, netip.AddrPort{}, dst)
	if f.Mapped {
		return f, nil
	}
	if !name.IsZero() {
		f.Pinned = []hostname.Name{name}
	}
	if v := g.judge(f); !v.Allowed() {
		return nil, fmt.Errorf("%w: %s", errDenied, v.Message())
	}
	f.Name = name
	return f, nil
}

var errDenied = errors.New("denied by policy")
