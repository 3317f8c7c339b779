package gateway

import (
	"net/netip"
	"slices"

	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/httphead"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// What stands between a flow and the engine's verdict is here, apart from sockets and links: a Gateway
// and an Offline judge by these functions, so that a review can't come out differently.

// nameBook knows what was resolved.
type nameBook interface {
	Pins() *dnsguard.Pins
	Mapped(addr netip.Addr) (policies.HostMapping, bool)
}

var (
	_ nameBook = (*dnsguard.Guard)(nil)
	_ nameBook = (*dnsguard.Replay)(nil)
)

// meet makes the flow from src to dst with what is known of dst.
func meet(known nameBook, proto egress.Proto, src, dst netip.AddrPort) (egress.Flow, policies.HostMapping) {
	f := egress.Flow{Proto: proto, Src: src, Dst: dst}
	if m, ok := known.Mapped(dst.Addr()); ok {
		f.Mapped = true
		f.Pinned = append(f.Pinned, m.Name)
		return f, m
	}
	f.Pinned = known.Pins().Names(dst.Addr())
	return f, policies.HostMapping{}
}

// judgeSaid judges a connection by what its client said first.
func judgeSaid(decide func(*egress.Flow) egress.Verdict, f *egress.Flow, said spoken) egress.Verdict {
	said.apply(f)
	if said.err != nil {
		return egress.Verdict{Reason: egress.ReasonUnreadable, Addr: f.Dst.Addr()}
	}
	v := decide(f)
	switch {
	case v.Action == egress.Peek:
		// A second Peek would mean that even the name can't decide: nothing more will be known.
		v.Action = egress.Deny
	case v.Action == egress.Allow && f.App == egress.AppHTTP:
		// Each request of a kept connection names its own host: all of them are judged.
		v.Action = egress.Inspect
	}
	return v
}

// narrow takes the names of a flow that a client asked the explicit proxy for: it named one host, so that
// only this one of the names pinned to the address counts. An address that the client wrote keeps them
// all, as when it is dialled.
func (r *proxyRequest) narrow(f *egress.Flow) {
	if !r.name.IsZero() && slices.Contains(f.Pinned, r.name) {
		f.Pinned = []hostname.Name{r.name}
	}
}

// judgeAsked judges a plain request to the explicit proxy by its name, as after a peek.
func judgeAsked(decide func(*egress.Flow) egress.Verdict, f *egress.Flow, name hostname.Name) egress.Verdict {
	return judgeSaid(decide, f, spoken{app: egress.AppHTTP, host: httphead.Head{Host: name}})
}

// refusedName is the verdict on a name that was asked of the explicit proxy and not resolved: where the
// policy allows the name, its addresses were not those that it may have.
func refusedName(engine *egress.Engine, name hostname.Name) egress.Verdict {
	v := engine.DecideName(name)
	if v.Action != egress.Deny {
		v = egress.Verdict{Reason: egress.ReasonRebinding, Name: name}
	}
	return v
}

// whole is the verdict on what can't be peeked at or inspected: a datagram.
func whole(v egress.Verdict) egress.Verdict {
	if v.Action != egress.Allow {
		v.Action = egress.Deny
	}
	return v
}

// echoed is the verdict on an echo request; an address of [hosts] stands for a port and answers none.
func echoed(f *egress.Flow, v egress.Verdict) egress.Verdict {
	if f.Mapped {
		v.Action = egress.Deny
	}
	return whole(v)
}

// quiet reports whether datagrams to port vanish: name services that announce to the local network, where
// nobody is.
func quiet(port uint16) bool {
	switch port {
	case netbiosNamePort, netbiosDatagramPort, mdnsPort, llmnrPort:
		return true
	}
	return false
}
