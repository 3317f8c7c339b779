package gateway

import (
	"errors"
	"net/netip"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
)

// errIngress ends a connection whose client may no longer connect.
var errIngress = errors.New("the policy no longer lets this client connect")

// inbound is what comes to published ports.
type inbound struct {
	g       *Gateway
	slots   chan struct{} // one for each connection, or each wait for one
	clients clients
	udp     udpFlows
}

// admits judges a client of a published port. Linux takes IPv6 datagrams from the wire that claim to come from an address
// of this machine (of IPv4 it takes none, and a TCP handshake with such a sender never ends): they are not believed.
func (i *inbound) admits(proto egress.Proto, client netip.Addr) egress.Verdict {
	claimed := proto == egress.UDP && client.Is6() && !client.IsLoopback()
	admit := egress.Admit
	if i.isPod() {
		admit = egress.AdmitPod
	}
	return admit(i.g.policy.Load(), client, !claimed && i.g.classifier.OwnedByHost(client))
}

// source is the address that the guest sees of a client.
func (i *inbound) source(client netip.Addr) netip.Addr {
	switch {
	case !i.isPod():
		return netip.Addr{} // the gateway's: the client's may mean another machine to the guest
	case !client.IsLoopback():
		return client
	case i.g.cfg.Pod.Is6():
		return netip.IPv6Loopback() // the gateway's IPv6 address
	}
	return netip.Addr{}
}

func (i *inbound) isPod() bool { return i.g.cfg.Pod.IsValid() }

// mayForward reports whether a client that the guest refuses may reach a server on its 127.0.0.1.
func (i *inbound) mayForward(client netip.Addr) bool {
	return i.g.cfg.Forward != nil && (!i.isPod() || client.IsLoopback())
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
