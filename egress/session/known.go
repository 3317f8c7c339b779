package session

import (
	"net/netip"
	"slices"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// Known is what a client said first, where its bytes are not at hand: in a capture of an inspected connection TLS
// hides them, and the gateway's comments give protocol and host instead.
type Known struct {
	App  egress.App
	Host hostname.Name // zero for a literal address
	ECH  bool
	// Unclear is Flow.Unclear.
	Unclear bool
	// Proxied says that the explicit proxy was asked for Host.
	Proxied bool
	// Pinned are the names of the connection, as they were when it began: a gateway keeps them for as long as
	// it lasts. Without any, the pins of the moment count.
	Pinned []hostname.Name
}

// OpenKnown is Open, and Data if that is needed, for a connection whose client's first bytes are known by what
// they said only.
func OpenKnown(rules *Rules, names Names, src, dst netip.AddrPort, k Known) (*Session, Step) {
	s := &Session{rules: rules, names: names}
	s.newFlow(egress.TCP, src, dst)
	if len(k.Pinned) > 0 && !s.flow.Mapped {
		s.flow.Pinned = k.Pinned
	}
	switch {
	case k.Proxied:
		s.narrow(k.Host)
	case dst.Port() == dnsPort:
		return s, Step{Action: ToDNS}
	}
	said := sniffed{app: k.App, name: k.Host, ech: k.ECH, unclear: k.Unclear}
	step := s.connect(s.decide())
	switch step.Action {
	case NeedBytes:
		step = s.sniffed(said)
	case Inspect:
		app := s.flow.App // as which it is inspected, whatever the client speaks
		said.apply(&s.flow)
		s.flow.App = app
	case Drop, Reject, Refuse, NeedNames, Wait, Dial, Relay, ToDNS, Continue, End:
	}
	return s, step
}

// narrow takes the names of a flow that a client asked the explicit proxy for: it named one host, so that only
// this one of the names pinned to the address counts. An address that the client wrote keeps them all, as when
// it is dialled.
func (s *Session) narrow(name hostname.Name) {
	if !name.IsZero() && slices.Contains(s.flow.Pinned, name) {
		s.flow.Pinned = []hostname.Name{name}
	}
}
