package session

import (
	"net/netip"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

const (
	dnsPort  = 53 // RFC 1035, section 4.2
	tlsPort  = 443
	mdnsPort = 5353
	// Name services that announce to the local network.
	netbiosNamePort     = 137
	netbiosDatagramPort = 138
	llmnrPort           = 5355
)

// state is how far a session got.
type state uint8

const (
	stateOver    state = iota
	stateAsking        // reads a request to the explicit proxy
	stateNaming        // the name that it asks for is being resolved
	stateFirst         // reads the client's first bytes
	stateWaiting       // a denial waits for an approval
	stateDialing
	stateRunning
)

// Session is the judgement of one flow.
type Session struct {
	rules   *Rules
	names   Names
	state   state
	flow    egress.Flow
	host    hostname.Name // of [hosts], where the flow is mapped
	verdict egress.Verdict

	proxied *proxied     // nil but for a request to the explicit proxy
	heldAt  egress.Stage // of the denial that waits for an approval
	// requests are those under way, by number.
	requests map[uint64]egress.Flow
	number   uint64
}

// Open begins a flow with its first packet. For ICMP the ports are 0.
func Open(rules *Rules, names Names, proto egress.Proto, src, dst netip.AddrPort) (*Session, Step) {
	s := &Session{rules: rules, names: names}
	s.newFlow(proto, src, dst)
	return s, s.open()
}

// newFlow sets the flow, with what is known of its destination.
func (s *Session) newFlow(proto egress.Proto, src, dst netip.AddrPort) {
	s.flow = egress.Flow{Proto: proto, Src: src, Dst: dst}
	s.lookUp()
}

// lookUp sets the names that the destination has now.
func (s *Session) lookUp() {
	name, mapped := s.names.Mapped(s.flow.Dst.Addr())
	s.flow.Mapped, s.host = mapped, name
	if mapped {
		s.flow.Pinned = []hostname.Name{name}
	} else {
		s.flow.Pinned = s.names.Pinned(s.flow.Dst.Addr())
	}
}

func (s *Session) open() Step {
	dst := s.flow.Dst
	switch {
	case s.flow.Proto != egress.ICMP && dst.Port() == dnsPort:
		return Step{Action: ToDNS}
	case s.flow.Proto == egress.ICMP && s.rules.isGateway(dst.Addr()):
		return Step{Action: Drop} // the stack itself answers
	case s.flow.Proto == egress.UDP && announces(dst.Port()):
		if s.verdict = s.decide(); s.verdict.Allowed() {
			s.verdict.Reason = egress.ReasonProtocol // the guest is on no network that could get an announcement
		}
		s.verdict.Action = egress.Deny
		return Step{Action: Drop, Decided: true}
	case s.flow.Proto == egress.TCP && dst.Port() == ProxyPort && s.rules.isGateway(dst.Addr()):
		s.state, s.proxied = stateAsking, &proxied{client: s.flow.Src, proxy: dst}
		return Step{Action: NeedBytes}
	}
	return s.connect(s.decide())
}

// announces reports whether datagrams to port are announcements to the local network: an ICMP error for each
// would only make clients log.
func announces(port uint16) bool {
	switch port {
	case netbiosNamePort, netbiosDatagramPort, mdnsPort, llmnrPort:
		return true
	}
	return false
}

// decide asks the engine about the flow as it is known now.
func (s *Session) decide() egress.Verdict {
	v := s.rules.decide(&s.flow)
	// Before the flow is allowed, or a person is asked, the kernel must say that it doesn't route it to this host.
	if v.Allowed() || s.rules.Approval != nil {
		v = s.decideLocal(v)
	}
	if v.Allowed() && s.rules.spent() {
		v.Action, v.Reason = egress.Deny, egress.ReasonLimit
	}
	return v
}

// decideLocal judges again if the kernel routes the destination to this host; v is the verdict without that.
func (s *Session) decideLocal(v egress.Verdict) egress.Verdict {
	if s.flow.Local = s.rules.owns(&s.flow); s.flow.Local {
		return s.rules.decide(&s.flow)
	}
	return v
}

// connect follows a verdict on a flow of which nothing was read.
func (s *Session) connect(v egress.Verdict) Step {
	s.verdict = v
	if s.flow.Proto != egress.TCP {
		return s.datagram()
	}
	if s.proxied != nil && !s.proxied.request.Connect && v.Allowed() {
		// A plain request to the proxy named its host: it is judged as after a peek.
		return s.sniffed(sniffed{app: egress.AppHTTP, name: s.proxied.request.Name})
	}
	switch v.Action {
	case egress.Allow:
		if s.flow.Dst.Port() == tlsPort && s.viaUsed() {
			return s.needBytes() // the upstream proxy is asked for the name, even where the policy needs none
		}
		return s.dial()
	case egress.Peek:
		return s.needBytes()
	case egress.Inspect:
		s.flow.App = egress.AppTLS
		if v.Protocol == policies.HTTP {
			s.flow.App = egress.AppHTTP
		}
		return s.inspect()
	case egress.Deny:
	}
	return s.deny()
}

// datagram follows a verdict on what can't be peeked at or inspected.
func (s *Session) datagram() Step {
	v := &s.verdict
	if v.Allowed() && s.flow.Proto == egress.ICMP && s.flow.Mapped {
		v.Action, v.WouldDeny, v.Reason = egress.Deny, false, egress.ReasonPort // a line of [hosts] opens ports only
		return s.denied()
	}
	if v.Action != egress.Allow {
		v.Action = egress.Deny
		return s.deny()
	}
	return s.dial()
}

func (s *Session) needBytes() Step {
	s.state = stateFirst
	return Step{Action: NeedBytes, Skipped: s.skipped()}
}

func (s *Session) dial() Step {
	s.state = stateDialing
	return Step{
		Action: Dial, Decided: true, Skipped: s.skipped(),
		Via: s.flow.App == egress.AppTLS && s.flow.Stage == egress.StageName && s.viaUsed(),
	}
}

func (s *Session) inspect() Step {
	s.state, s.verdict.Action = stateRunning, egress.Inspect
	return Step{Action: Inspect, Decided: true, Skipped: s.skipped()}
}

// viaUsed reports whether TLS to the destination goes through the upstream proxy. Targets that
// the operator gave by address ([hosts], private rules) are inside, where that proxy doesn't lead.
func (s *Session) viaUsed() bool {
	return s.rules.Via != nil && !s.flow.Mapped && !s.verdict.Special
}

// deny ends the flow with the verdict, or holds it for an approval.
func (s *Session) deny() Step {
	if d := s.approvalTime(); d > 0 {
		s.state, s.heldAt = stateWaiting, s.flow.Stage
		return Step{Action: Wait, Timeout: d, Skipped: s.skipped()}
	}
	return s.denied()
}

func (s *Session) denied() Step {
	standing := s.state == stateFirst || s.state == stateWaiting && s.heldAt == egress.StageName
	switch {
	case s.proxied != nil && !s.proxied.tunnel:
		s.proxied.skip(s.Judged())
		return s.nextAddr()
	case standing || s.proxied != nil:
		s.state = stateOver
		return Step{Action: Refuse, Decided: true, Refusal: Refusal{app: s.flow.App}}
	}
	s.state = stateOver
	return Step{Action: Reject, Decided: true}
}

// Data takes everything that the client said since the last NeedBytes, from its first byte on.
func (s *Session) Data(first []byte, end Ending) Step {
	switch s.state {
	case stateAsking:
		return s.proxyRequest(first, end)
	case stateFirst:
		said, more := sniff(first)
		if more && end == More {
			return Step{Action: NeedBytes}
		}
		if more {
			said = truncated(len(first), said.app, end)
		}
		return s.sniffed(said)
	case stateOver, stateNaming, stateWaiting, stateDialing, stateRunning:
	}
	return Step{Action: Continue}
}

// sniffed judges a connection by what its client said first.
func (s *Session) sniffed(said sniffed) Step {
	said.apply(&s.flow)
	if said.err != nil {
		s.verdict = egress.Verdict{Reason: egress.ReasonUnreadable, Addr: s.flow.Dst.Addr()}
		return s.denied()
	}
	return s.named(s.decide())
}

// named follows a verdict on a connection whose client's first bytes are known.
func (s *Session) named(v egress.Verdict) Step {
	s.verdict = v
	switch {
	case v.Action == egress.Inspect, v.Action == egress.Allow && s.flow.App == egress.AppHTTP:
		// Each request of a kept connection names its own host: all of them are judged.
		return s.inspect()
	case v.Action == egress.Allow:
		return s.dial()
	}
	// A second Peek would mean that even the name can't decide, and nothing more will be known: deny.
	s.verdict.Action = egress.Deny
	return s.deny()
}

// Dialed takes the result of a Dial.
func (s *Session) Dialed(err error) Step {
	switch {
	case s.state != stateDialing:
		return Step{Action: Continue}
	case err == nil:
		s.state = stateRunning
		return Step{Action: Relay}
	case s.proxied != nil && !s.proxied.tunnel:
		s.proxied.dialErr = err
		return s.nextAddr()
	}
	s.state = stateOver
	if s.flow.Stage == egress.StageName { // as in every tunnel
		return Step{Action: Refuse} // by a reset: the client takes its handshake for the server's
	}
	return Step{Action: Reject}
}

// Asks reports whether the flow is a connection to the explicit proxy whose request is not read yet.
func (s *Session) Asks() bool { return s.state == stateAsking }

// Judged is what is known of the flow, with the last verdict on it.
func (s *Session) Judged() Judged {
	j := Judged{Flow: s.flow, Verdict: s.verdict}
	if s.flow.Mapped {
		j.Target = s.rules.Hosts[s.host]
	}
	return j
}
