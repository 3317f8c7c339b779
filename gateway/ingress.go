package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
)

// errIngress ends a connection whose client may no longer connect.
var errIngress = errors.New("the policy no longer lets this client connect")

// inbound is what comes to published ports.
type inbound struct {
	g       *Gateway
	slots   chan struct{} // one for each connection, or for who waits for one
	clients clients
	udp     udpFlows
}

// admits judges a client of a published port. Linux takes IPv6 datagrams from the wire that claim to come from an address
// of this machine (of IPv4 it takes none, and a TCP handshake with such a sender never ends): they are not believed.
func (i *inbound) admits(proto egress.Proto, client netip.Addr) egress.Verdict {
	claimed := proto == egress.UDP && client.Is6() && !client.IsLoopback()
	return egress.Admit(i.g.policy.Load(), client, !claimed && i.g.classifier.OwnedByHost(client))
}

// clientOf is the address of who connected; the zero one can't be read, and may not connect.
func clientOf(a net.Addr) netip.AddrPort {
	client, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(client.Addr().Unmap(), client.Port())
}

// event begins the audit line of one client, and decides.
func (i *inbound) event(proto egress.Proto, client netip.AddrPort, port uint16) (ev audit.Event, ok bool) {
	return begin(i.admits(proto, client.Addr()), audit.Event{Proto: proto.String(), Client: client, Port: port})
}

// begin completes the audit line of a client with the verdict on it.
func begin(v egress.Verdict, ev audit.Event) (begun audit.Event, ok bool) {
	ev.Kind, ev.Action, ev.Rule, ev.Reason = audit.PortFlow, v.Action.String(), v.Rule, v.Reason.String()
	if v.Action != egress.Allow {
		ev.Message = "no rule of [[ingress.allow]] lets this client connect"
	}
	return ev, v.Action == egress.Allow
}

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

// admitted puts the verdict on a client beside the packets of its flow: those between the gateway's address and the
// guest's port. c may be nil. One that was refused has no packets.
func (c *CaptureTap) admitted(ev *audit.Event, gateway, guest netip.AddrPort) {
	if c == nil {
		return
	}
	if w := c.writer.Load(); w != nil {
		v := capture.Verdict{Kind: capture.KindPort, Action: ev.Action, Rule: ev.Rule, Reason: ev.Reason, Client: ev.Client.String()}
		if ev.Peer != "" {
			v.Client = capture.PeerPrefix + ev.Peer
		}
		c.comment(w, flowKey{transportOf(ev.Proto), guest.Port(), gateway}, text(v))
	}
}
