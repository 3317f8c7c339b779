package probe

import (
	"net/netip"
	"slices"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/hostname"
)

// talk is one way in which a client begins.
type talk struct {
	said  string
	first session.Known
}

// unpinned is a name that no answer gave an address for.
var unpinned = hostname.MustParse("msb-unpinned.example")

// talksTo are the ways in which a client may begin a connection, the usual one of the port first.
func talksTo(dest destination, port uint16) []talk {
	list := []talk{
		{"tls", session.Known{App: egress.AppTLS, Host: dest.name}},
		{"http", session.Known{App: egress.AppHTTP, Host: dest.name}},
		{"tls with ech", session.Known{App: egress.AppTLS, Host: dest.name, ECH: true}},
		{"tls with another name", session.Known{App: egress.AppTLS, Host: unpinned}},
		{"http with another name", session.Known{App: egress.AppHTTP, Host: unpinned}},
		{"another protocol", session.Known{App: egress.AppOpaque}},
		{"another protocol in text", session.Known{App: egress.AppOpaque, Unclear: true}},
	}
	if !dest.name.IsZero() {
		list = append(list, talk{"tls without a name", session.Known{App: egress.AppTLS}})
	}
	if saidAt(port) == egress.AppHTTP {
		list[0], list[1] = list[1], list[0]
	}
	return list
}

// What becomes of a flow, as Change.Before and After say it.
var (
	allowed   = egress.Allow.String()
	denied    = egress.Deny.String()
	inspected = egress.Inspect.String()
)

// outcome is what becomes of a flow.
type outcome struct {
	action, rule string
	flow         *session.Session // nil if none was opened
	final        bool             // whatever the client says
}

func (o *outcome) denied() bool { return o.action == denied }

// request is what becomes of one request on the flow.
func (o *outcome) request(t talk, r request) outcome {
	if o.action != inspected {
		return outcome{action: o.action, rule: o.rule}
	}
	return ofVerdict(requestOn(o.flow, t.first.App, r))
}

// requestOn judges a request on an inspected connection of a client that speaks app.
func requestOn(s *session.Session, app egress.App, r request) egress.Verdict {
	judged := s.Judged()
	f, v := judged.Flow, judged.Verdict
	if f.App != app { // the rule alone said as what it is inspected
		v.Action, v.Reason = egress.Deny, egress.ReasonUnreadable
		return v
	}
	f.Stage, f.Method, f.Path = egress.StageRequest, r.method, r.path
	return s.Decide(&f)
}

func ofVerdict(v egress.Verdict) outcome {
	if v.Allowed() {
		return outcome{action: allowed, rule: v.Rule}
	}
	return outcome{action: denied, rule: v.Rule}
}

// judge asks sessions under one policy.
type judge struct{ rules *session.Rules }

// resolve is what becomes of a question for name.
func (j judge) resolve(name hostname.Name) outcome { return ofVerdict(j.rules.Engine.DecideName(name)) }

func (j judge) unresolved(name hostname.Name) bool { return !j.rules.Engine.DecideName(name).Allowed() }

func (j judge) ask(dest destination, proto egress.Proto, port uint16, t talk) outcome {
	names := resolved{addr: dest.addr}
	if !dest.name.IsZero() && !dest.unresolved {
		if o := j.resolve(dest.name); o.denied() {
			o.final = true
			return o
		}
		if _, names.mapped = j.rules.Hosts[dest.name]; !names.mapped {
			if o := ofVerdict(j.rules.Engine.AllowsAddr(dest.name, dest.addr)); o.denied() {
				o.final = true
				return o
			}
		}
		names.names = []hostname.Name{dest.name}
	}
	s, step := open(j.rules, names, proto, netip.AddrPortFrom(dest.addr, port), t.first)
	judged := s.Judged()
	o := outcome{action: denied, rule: judged.Verdict.Rule, flow: s, final: judged.Flow.Stage == egress.StageConnect && step.Action != session.Inspect}
	switch step.Action {
	case session.Dial, session.Relay:
		o.action = allowed
	case session.Inspect:
		o.action = inspected
	case session.Drop, session.Reject, session.Refuse, session.NeedBytes, session.NeedNames, session.Wait, session.ToDNS, session.Continue, session.End:
	}
	return o
}

// open opens a flow whose client says what is known of it.
func open(rules *session.Rules, names resolved, proto egress.Proto, dst netip.AddrPort, first session.Known) (*session.Session, session.Step) {
	if proto == egress.TCP {
		return session.OpenKnown(rules, names, netip.AddrPort{}, dst, first)
	}
	return session.Open(rules, names, proto, netip.AddrPort{}, dst)
}

// resolved are the names of the one address in hand.
type resolved struct {
	addr   netip.Addr
	names  []hostname.Name
	mapped bool
}

// Pinned implements session.Names.
func (r resolved) Pinned(addr netip.Addr) []hostname.Name {
	if addr != r.addr {
		return nil
	}
	return r.names
}

// Mapped implements session.Names.
func (r resolved) Mapped(addr netip.Addr) (hostname.Name, bool) {
	if addr != r.addr || !r.mapped {
		return hostname.Name{}, false
	}
	return r.names[0], true
}

// reserved reports whether no flow to the port leaves the gateway, whatever a policy says.
func reserved(proto egress.Proto, cell portCell) bool {
	ports := []uint16{dnsPort}
	if proto == egress.UDP {
		ports = reservedPorts
	}
	return cell.first == cell.last && slices.Contains(ports, cell.first)
}

// reservedPorts are the resolver's own and those of announcements to the local network, which sessions drop.
var reservedPorts = []uint16{dnsPort, 137, 138, 5353, 5355}
