package gateway

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/msb-project/msb/egress"
)

// clients are those that are connected to published ports, so that a reload can judge them again.
type clients struct {
	mu   sync.Mutex
	live map[*inboundClient]struct{}
	came bool // one did since used looked
}

type inboundClient struct {
	judge  judgeClient
	there  func() bool // false once the guest alone keeps the connection
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
func (i *inbound) follow(ctx context.Context, judge judgeClient, there func() bool) (followed context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &inboundClient{judge, there, cancel}
	i.clients.mu.Lock()
	i.clients.came = true
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

// Used reports whether clients of published ports, or other sandboxes, use the guest, or did since the last call. A flow
// that the guest alone keeps is none: it would keep its sandbox from ever being idle.
func (g *Gateway) Used() bool { return g.inbound.clients.used() }

func (c *clients) used() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := c.came
	c.came = false
	for client := range c.live {
		if used {
			break
		}
		used = client.there()
	}
	return used
}

// connThere reports whether a connection's other end may still be there: one that has sent its end may wait for an answer,
// and whether it does is known once the kernel asks it (net's keep-alive) or writes to it.
func connThere(c net.Conn) func() bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return func() bool { return true }
	}
	raw, err := s.SyscallConn()
	return func() bool { return err != nil || !hungUp(raw) }
}
