package egress

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// reference judges slowly and plainly, straight from doc.go: it walks every rule
// of the policy and shares no code with the engine but the classifier, the list
// of resolvers and the cleaning of paths. Properties compare the two.
type reference struct {
	p *policies.Policy
	c *Classifier
	f Flow
	// above are the policies over p, the uppermost first.
	above []*policies.Policy
}

func refDecide(p *policies.Policy, c *Classifier, f Flow) (Action, bool) {
	return refUnder(nil, p, c, f)
}

func refUnder(above []*policies.Policy, p *policies.Policy, c *Classifier, f Flow) (Action, bool) {
	a, would := refOne(above, p, c, f)
	if p.Floor != nil && a != Deny {
		b, w := refUnder(append(slices.Clone(above), p), p.Floor, c, f)
		if b == Deny {
			return Deny, false
		}
		a, would = refMax(a, b), would || w
	}
	return a, would
}

func refMax(a, b Action) Action {
	order := []Action{Allow, Peek, Inspect, Deny}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

func refOne(above []*policies.Policy, p *policies.Policy, c *Classifier, f Flow) (Action, bool) {
	r := reference{p, c, f, above}
	if !r.rangesAllow() {
		return Deny, false
	}
	a := r.enforced()
	if a == Deny && p.Egress.Mode == policies.Report && (f.Stage != StageRequest || r.mayInspect()) {
		return Allow, true
	}
	return a, false
}

func (r reference) dst() netip.Addr { return r.f.Dst.Addr().Unmap() }

func (r reference) has(c policies.Rule, a netip.Addr) bool {
	return slices.ContainsFunc(c.CIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (r reference) named(c policies.Rule, n hostname.Name) bool {
	return slices.ContainsFunc(c.Hosts, func(p hostname.Pattern) bool { return p.Match(n) })
}

// covers: transport and port.
func (r reference) covers(c policies.Rule) bool {
	t := c.Protocol.Transport()
	if t != policies.Any && t != map[Proto]policies.Protocol{TCP: policies.TCP, UDP: policies.UDP, ICMP: policies.ICMP}[r.f.Proto] {
		return false
	}
	if len(c.Ports) == 0 || c.Protocol == policies.ICMP {
		return true
	}
	return r.f.Proto != ICMP && slices.ContainsFunc(c.Ports, func(p policies.PortRange) bool { return p.Contains(r.f.Dst.Port()) })
}

func (r reference) mapping() (policies.HostMapping, bool) {
	for _, h := range r.p.Hosts {
		if r.f.Mapped && len(r.f.Pinned) == 1 && h.Name == r.f.Pinned[0] {
			return h, true
		}
	}
	return policies.HostMapping{}, false
}

func (r reference) public() bool { return r.c.class(r.dst()) == ClassPublic }

// leads: a rule for the name n is one at this address too. Without within that is
// every public address.
func (r reference) leads(c policies.Rule, n hostname.Name) bool {
	class := r.c.class(r.dst())
	if !r.named(c, n) || len(c.Within) == 0 {
		return r.named(c, n) && class == ClassPublic
	}
	return slices.ContainsFunc(c.Within, func(p netip.Prefix) bool {
		return p.Contains(r.dst()) && (class == ClassPublic || p.Bits() > 0 && (class != ClassMetadata || p.IsSingleIP()))
	})
}

// nameRules: a rule for a pinned name leads to this special address, for this port; the
// second is of UDP where the rule is about TLS or HTTP.
func (r reference) nameRules() (mine, quic bool) {
	for _, c := range r.p.Egress.Allow {
		l7 := c.Protocol == policies.HTTPS || c.Protocol == policies.HTTP || c.Protocol == policies.ProtocolTLS
		for _, n := range r.f.Pinned {
			if !r.leads(c, n) {
				continue
			}
			mine = mine || r.covers(c)
			quic = quic || l7 && r.f.Proto == UDP && slices.ContainsFunc(c.Ports, func(p policies.PortRange) bool { return p.Contains(r.f.Dst.Port()) })
		}
	}
	return mine, quic
}

// privately: a private rule covers the address.
func (r reference) privately() bool {
	class := r.c.class(r.dst())
	for _, c := range r.p.Egress.Allow {
		for _, p := range c.CIDRs {
			if c.Private && r.covers(c) && p.Contains(r.dst()) && (class != ClassMetadata || p.IsSingleIP()) {
				return true
			}
		}
	}
	return false
}

func (r reference) rangesAllow() bool {
	if r.f.Mapped {
		_, ok := r.mapping()
		return ok
	}
	switch r.c.class(r.dst()) {
	case ClassPublic:
		return true
	case ClassHost, ClassGateway, ClassLoopback, ClassUnspecified, ClassInvalid:
		return false
	default:
		mine, quic := r.nameRules()
		return mine || !quic && r.privately()
	}
}

// said: the client said a name that is pinned to the address.
func (r reference) said() bool {
	return r.f.Stage != StageConnect && !r.f.ECH && !r.f.Name.IsZero() && slices.Contains(r.f.Pinned, r.f.Name)
}

func (r reference) barred(n hostname.Name) bool {
	return r.p.TLS.Inspect == policies.InspectNone || slices.ContainsFunc(r.p.TLS.Bypass, func(p hostname.Pattern) bool { return p.Match(n) })
}

// strayBypass: where connections are inspected, the client says a name under bypass that isn't pinned here.
func (r reference) strayBypass(n hostname.Name) bool {
	return r.barred(n) && !r.said() && (r.watched() || r.p.TLS.Inspect == policies.InspectAll)
}

// watched: some rule needs to see the Host of requests to every host.
func (r reference) watched() bool {
	if r.p.TLS.Inspect == policies.InspectNone || r.p.Egress.Default == policies.DefaultPublic && r.p.TLS.Inspect == policies.InspectAuto {
		return false
	}
	return len(r.watchers()) > 0
}

// watchers are the policies whose bypass counts for watched: from the nearest policy above that has such a
// rule, if none from p on has one, down to the last floor.
func (r reference) watchers() []*policies.Policy {
	needs := func(p *policies.Policy) bool {
		for _, c := range p.Egress.Deny {
			if len(c.Hosts) > 0 || isRequest(c) {
				return true
			}
		}
		return slices.ContainsFunc(p.Egress.Allow, isRequest)
	}
	var from []*policies.Policy
	for p := r.p; p != nil; p = p.Floor {
		from = append(from, p)
	}
	if slices.ContainsFunc(from, needs) {
		return from
	}
	for i := len(r.above) - 1; i >= 0; i-- {
		from = append(from, r.above[i])
		if needs(r.above[i]) {
			return from
		}
	}
	return nil
}

// watches: a connection to n is inspected because of watched.
func (r reference) watches(n hostname.Name) bool {
	closed := slices.ContainsFunc(r.watchers(), func(p *policies.Policy) bool {
		return !n.IsZero() && reference{p: p}.barred(n)
	})
	return r.watched() && !closed
}

// leaves: some names are closed whatever the rules.
func (r reference) leaves() bool {
	all := []*policies.Policy{r.p}
	if r.watched() {
		all = append(all, r.watchers()...)
	}
	return slices.ContainsFunc(all, func(p *policies.Policy) bool {
		return len(p.TLS.Bypass) > 0 || p != r.p && p.TLS.Inspect == policies.InspectNone
	})
}

func (r reference) mayInspect() bool {
	if r.f.App == AppTLS {
		return r.said() && !r.barred(r.f.Name)
	}
	return r.f.App == AppHTTP && (r.said() || r.f.Name.IsZero())
}

func (r reference) webPort(c policies.Rule) bool {
	if len(c.Ports) == 0 {
		return r.f.Dst.Port() == 80 || r.f.Dst.Port() == 443
	}
	return slices.ContainsFunc(c.Ports, func(p policies.PortRange) bool { return p.Contains(r.f.Dst.Port()) })
}

func isRequest(c policies.Rule) bool { return len(c.Methods)+len(c.Paths) > 0 }

func speaks(p policies.Protocol, a App) bool {
	switch p {
	case policies.HTTPS, policies.ProtocolTLS:
		return a == AppTLS
	case policies.HTTP:
		return a == AppHTTP
	default:
		return true
	}
}

// denials returns whether the flow is denied outright, whether its name must be
// seen first, and whether its requests must be.
func (r reference) denials() (denied, mustName, mustInspect bool) {
	inner := []netip.Addr{r.dst()}
	if r.dst().Is6() {
		var e embedded
		e.find(r.dst().As16())
		for _, v := range e.addrs[:e.n] {
			inner = append(inner, netip.AddrFrom4(v))
		}
	}
	bad := map[hostname.Name]bool{}
	for _, c := range r.p.Egress.Deny {
		if !r.covers(c) {
			continue
		}
		about := []hostname.Name{}
		for _, n := range r.f.Pinned {
			if r.named(c, n) && (!r.said() || n == r.f.Name) {
				about = append(about, n)
			}
		}
		if r.f.Stage != StageConnect && !r.said() && r.named(c, r.f.Name) {
			about = append(about, r.f.Name)
		}
		byAddr := len(c.Hosts)+len(c.CIDRs) == 0
		for _, a := range inner {
			byAddr = byAddr || !r.f.Mapped && r.has(c, a)
		}
		if !byAddr && len(about) == 0 {
			continue
		}
		if isRequest(c) {
			switch {
			case r.f.Proto != TCP:
			case r.f.Stage == StageConnect:
				mustInspect = mustInspect || r.webPort(c)
			case !speaks(c.Protocol, r.f.App) && (!r.webPort(c) || !r.f.Unclear && r.f.App != AppSilent):
			case r.f.Stage == StageName:
				mustInspect = true
			case len(c.Methods) > 0 && !slices.Contains(c.Methods, strings.ToUpper(r.f.Method)):
			default:
				clean, ok := CleanPath(r.f.Path)
				if len(usefulPaths(c.Paths)) == 0 || !ok || slices.ContainsFunc(c.Paths, func(g string) bool { return policies.MatchPath(g, clean) }) {
					denied = true
				}
			}
			continue
		}
		denied = denied || byAddr
		for _, n := range about {
			bad[n] = true
		}
	}
	all := true
	for _, n := range r.f.Pinned {
		all = all && bad[n]
	}
	switch {
	case len(bad) == 0:
	case r.f.Proto != TCP || r.f.Stage != StageConnect || all:
		denied = true
	default:
		mustName = true
	}
	return denied, mustName, mustInspect
}

// grant is what one rule gives.
type grant uint8

const (
	gNone grant = iota
	gRelay
	gPeek
	gInspect // https
	gHTTP    // inspect http
	gSecret  // inspect https, and a secret may go there
)

// grants lists what every rule gives, by address and by each pinned name.
func (r reference) grants() []grant {
	mine := false
	if !r.public() {
		mine, _ = r.nameRules()
	}
	class := r.c.class(r.dst())
	var out []grant
	for _, c := range r.p.Egress.Allow {
		if !r.covers(c) {
			continue
		}
		says853 := slices.Contains(c.Ports, policies.PortRange{First: 853, Last: 853})
		for _, p := range c.CIDRs {
			if mine || r.f.Mapped || !p.Contains(r.dst()) || !r.public() && (!c.Private || class == ClassMetadata && !p.IsSingleIP()) {
				continue
			}
			if r.foreignDNS() && !p.IsSingleIP() && !says853 {
				continue
			}
			out = append(out, r.grant(c, hostname.Name{}))
		}
		for _, h := range c.Hosts {
			for _, n := range r.f.Pinned {
				if !h.Match(n) || !r.f.Mapped && !r.leads(c, n) {
					continue
				}
				if knownResolvers().hasName(n) && h.Wildcard() || r.foreignDNS() && h.Wildcard() && !says853 {
					continue
				}
				out = append(out, r.grant(c, n))
			}
		}
	}
	return out
}

func (r reference) foreignDNS() bool {
	return r.f.Dst.Port() == 853 || r.f.Dst.Port() == 443 && !r.f.Mapped && knownResolvers().hasAddr(r.dst()) ||
		r.f.Stage != StageConnect && knownResolvers().hasName(r.f.Name)
}

func (r reference) grant(c policies.Rule, n hostname.Name) grant {
	byName := !n.IsZero()
	if c.Protocol.Transport() == c.Protocol { // any, tcp, udp, icmp
		return gRelay
	}
	connect := r.f.Stage == StageConnect
	if !connect && (!speaks(c.Protocol, r.f.App) || byName && (n != r.f.Name || r.f.ECH)) {
		return gNone
	}
	if r.f.Stage == StageRequest {
		clean, ok := CleanPath(r.f.Path)
		paths := usefulPaths(c.Paths)
		if len(c.Methods) > 0 && !slices.Contains(c.Methods, r.f.Method) ||
			len(paths) > 0 && (!ok || !slices.ContainsFunc(paths, func(g string) bool { return policies.MatchPath(g, clean) })) {
			return gNone
		}
		return gRelay
	}
	closed := gRelay
	if connect {
		closed = gPeek
	}
	anyDenyName := slices.ContainsFunc(r.p.Egress.Deny, func(c policies.Rule) bool { return len(c.Hosts) > 0 })
	switch c.Protocol {
	case policies.ProtocolTLS:
		return closed
	case policies.HTTP:
		switch {
		case !byName && !isRequest(c) && !anyDenyName:
			return closed
		case connect || r.mayInspect():
			return gHTTP
		}
		return gNone
	default: // https
	}
	subject := n
	if !byName {
		subject = r.f.Name
	}
	secret := byName && slices.ContainsFunc(r.p.Secrets, func(s policies.Secret) bool {
		return slices.ContainsFunc(s.Hosts, func(h policies.SecretHost) bool { return h.Pattern.Match(n) })
	})
	look := isRequest(c) || secret || r.p.TLS.Inspect == policies.InspectAll || r.watches(subject)
	switch {
	case r.barred(subject) && isRequest(c), !connect && r.strayBypass(subject):
		return gNone
	case r.barred(subject) || !look || subject.IsZero() && connect && r.leaves():
		return closed
	case !connect && !r.said():
		return gNone
	case secret:
		return gSecret
	}
	return gInspect
}

func (r reference) enforced() Action {
	denied, mustName, mustInspect := r.denials()
	if denied {
		return Deny
	}
	got := r.grants()
	has := func(g grant) bool { return slices.Contains(got, g) }
	open := r.p.Egress.Default == policies.DefaultPublic && r.public() && !r.foreignDNS() && !r.f.Mapped
	if _, ok := r.mapping(); ok {
		open = !slices.ContainsFunc(r.p.Egress.Allow, func(c policies.Rule) bool { return r.named(c, r.f.Pinned[0]) })
	}
	watched := slices.ContainsFunc(r.p.Egress.Deny, func(c policies.Rule) bool {
		return (len(c.Hosts) > 0 || isRequest(c)) && c.Protocol.Transport() != policies.UDP && c.Protocol != policies.ICMP && r.webPort(c)
	})
	all := r.p.TLS.Inspect == policies.InspectAll
	fronted := r.watched()
	inspect := has(gInspect) || has(gSecret) || has(gHTTP)
	mixed := has(gHTTP) && (has(gInspect) || has(gSecret))
	switch {
	case r.f.Proto != TCP:
		switch {
		case has(gRelay):
			return Allow
		case !open:
			return Deny
		case r.f.Proto == UDP && (r.quicRule() || r.f.Dst.Port() == 443 && (watched || all)):
			return Deny
		}
		return Allow
	case r.f.Stage == StageConnect:
		switch {
		case has(gRelay) && !mustName && !mustInspect && !has(gSecret):
			return Allow
		case !has(gRelay) && !has(gPeek) && !inspect && !open:
			return Deny
		case inspect && !mixed && !has(gRelay) && !has(gPeek) && !open:
			return Inspect
		case has(gRelay) || has(gPeek) || inspect || mustName || mustInspect || watched || fronted || all && r.f.Dst.Port() == 443:
			return Peek
		}
		return Allow
	case r.f.Stage == StageRequest:
		if r.mayInspect() && (has(gRelay) || open) {
			return Allow
		}
		return Deny
	}
	switch {
	case !has(gRelay) && !inspect && !open:
		return Deny
	case mustInspect && r.mayInspect():
		return Inspect
	case mustInspect:
		return Deny
	case has(gSecret):
		return Inspect
	case has(gRelay):
		return Allow
	case has(gInspect), has(gHTTP):
		return Inspect
	case r.f.App == AppTLS && r.f.ECH && (watched || fronted), r.f.App == AppSilent && fronted, r.f.Unclear && (watched || fronted || all):
		return Deny
	case r.f.App == AppTLS && r.strayBypass(r.f.Name):
		return Deny
	case r.f.App == AppTLS && (all || r.watches(r.f.Name)) && !r.barred(r.f.Name), r.f.App == AppHTTP && (watched || fronted):
		if r.mayInspect() {
			return Inspect
		}
		return Deny
	}
	return Allow
}

// quicRule: an https, http or tls rule names a pinned host, or the address, and
// lists this port.
func (r reference) quicRule() bool {
	for _, c := range r.p.Egress.Allow {
		l7 := c.Protocol == policies.HTTPS || c.Protocol == policies.HTTP || c.Protocol == policies.ProtocolTLS
		here := !r.f.Mapped && r.has(c, r.dst()) && (r.public() || c.Private)
		for _, n := range r.f.Pinned {
			for _, h := range c.Hosts {
				here = here || h.Match(n) && (r.f.Mapped || r.leads(c, n)) && (!h.Wildcard() || !knownResolvers().hasName(n))
			}
		}
		if l7 && here && slices.ContainsFunc(c.Ports, func(p policies.PortRange) bool { return p.Contains(r.f.Dst.Port()) }) {
			return true
		}
	}
	return false
}
