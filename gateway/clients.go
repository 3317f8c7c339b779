package gateway

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"github.com/msb-project/msb/egress"
)

// clients are those that are connected to published ports, so that a reload can judge them again.
type clients struct {
	mu   sync.Mutex
	live map[*inboundClient]struct{}
}

type inboundClient struct {
	judge  judgeClient
	cancel context.CancelCauseFunc
}

// judgeClient judges a client by the policy in force.
type judgeClient func() egress.Verdict

// clientOf is the address of who connected; the zero one can't be read, and may not connect.
func clientOf(a net.Addr) netip.AddrPort {
	client, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(client.Addr().Unmap(), client.Port())
}

// byAddress judges a client of a published port.
func (i *inbound) byAddress(proto egress.Proto, client netip.Addr) judgeClient {
	return func() egress.Verdict { return i.admits(proto, client) }
}

// follow returns a context that ends when a reload no longer lets the client connect; done forgets it.
func (i *inbound) follow(ctx context.Context, judge judgeClient) (followed context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &inboundClient{judge, cancel}
	i.clients.mu.Lock()
	if i.clients.live == nil {
		i.clients.live = make(map[*inboundClient]struct{})
	}
	i.clients.live[c] = struct{}{}
	i.clients.mu.Unlock()
	if judge().Action != egress.Allow { // a reload came between
		cancel(errIngress)
	}
	return ctx, func() {
		i.clients.mu.Lock()
		delete(i.clients.live, c)
		i.clients.mu.Unlock()
		cancel(nil)
	}
}

// revokeClients ends the connections of clients that may no longer connect.
func (i *inbound) revokeClients() (ended int) {
	i.clients.mu.Lock()
	defer i.clients.mu.Unlock()
	for c := range i.clients.live {
		if c.judge().Action != egress.Allow {
			c.cancel(errIngress)
			ended++
		}
	}
	return ended
}

// count is how many clients are connected to published ports.
func (c *clients) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.live)
}

// Clients are the connections and UDP flows of published ports that are alive now.
func (g *Gateway) Clients() int { return g.inbound.clients.count() }
