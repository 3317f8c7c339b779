package policies

import (
	"fmt"
	"slices"

	"github.com/msb-project/msb/hostname"
)

// InspectionCause returns the rule of p or of its floors for which https connections to other destinations
// are inspected too: the first deny rule by name, else the first rule with methods or paths. On a connection
// that is not inspected, a client may ask for any host that its server has (domain fronting), so that such a
// rule holds for inspected connections only.
func InspectionCause(p *Policy) (Rule, bool) {
	for q := p; q != nil; q = q.Floor {
		if r, ok := OwnInspectionCause(q); ok {
			return r, true
		}
	}
	return Rule{}, false
}

// OwnInspectionCause is InspectionCause without the floors.
func OwnInspectionCause(p *Policy) (Rule, bool) {
	byName := func(r Rule) bool { return len(r.Hosts) > 0 }
	byRequest := func(r Rule) bool { return len(r.Methods)+len(r.Paths) > 0 }
	if i := slices.IndexFunc(p.Egress.Deny, byName); i >= 0 {
		return p.Egress.Deny[i], true
	}
	if i := slices.IndexFunc(p.Egress.Deny, byRequest); i >= 0 {
		return p.Egress.Deny[i], true
	}
	if i := slices.IndexFunc(p.Egress.Allow, byRequest); i >= 0 {
		return p.Egress.Allow[i], true
	}
	return Rule{}, false
}

// watches reports whether p has every https connection inspected for the sake of InspectionCause.
func watches(p *Policy) (Rule, bool) {
	r, ok := InspectionCause(p)
	return r, ok && p.Egress.Default == DefaultDeny && p.TLS.Inspect == InspectAuto
}

// Fronting lists the connections in which nobody sees for which host a request is: whoever has one to a server
// may ask it for every host that it serves, names that the policy denies among them. They are no faults: a
// policy may well be meant so.
func Fronting(p *Policy) ErrorList {
	f := &faults{file: p.File}
	cause, has := InspectionCause(p)
	byName := func(r Rule) bool { return len(r.Hosts) > 0 }
	switch {
	case inspectsAll(p):
		f.frontingOpaque(p)
	case isPublic(p):
		if slices.ContainsFunc(slices.Concat(p.Egress.Allow, p.Egress.Deny), byName) {
			f.add("egress.default", "fronting: under \"public\" a name is no boundary: a server may be asked for any other host that it serves, one that a rule denies too", "write tls.inspect = \"all\", or default = \"deny\" and what is allowed")
		}
	case has && p.TLS.Inspect == InspectNone:
		f.addAt(cause.Pos, "", fmt.Sprintf("fronting: there are ways around the rule %q, since tls.inspect is \"none\": an allowed server may be asked for any other host that it serves", cause.Name), "write inspect = \"auto\"")
	case has:
		f.frontingOpaque(p)
	case slices.ContainsFunc(p.Egress.Allow, func(r Rule) bool { return r.Protocol == HTTPS && byName(r) }):
		f.add("tls.inspect", "fronting: a name in an https rule is no boundary: its server may be asked for any other host that it serves", "write \"all\" where that matters")
	}
	return f.list
}

// frontingOpaque lists what is never inspected.
func (f *faults) frontingOpaque(p *Policy) {
	const asked = "its servers may be asked for any host that they serve"
	const remedy = "where clients take msb's certificates, "
	for _, r := range p.Egress.Allow {
		if what := opaque(r); what != "" {
			f.addAt(r.Pos, "", fmt.Sprintf("fronting: connections by the rule %q, %s, are not inspected: %s", r.Name, what, asked), remedy+"write protocol = \"https\"")
		}
	}
	for _, b := range p.TLS.Bypass {
		f.add("tls.bypass", fmt.Sprintf("fronting: connections to %s are not inspected: %s", b.Display(), asked), remedy+"take the name out")
	}
}

// opaque says why connections by an allow rule are not inspected though HTTP is what they carry, or may carry;
// "" for others.
func opaque(r Rule) string {
	on := func(ports ...uint16) bool {
		return len(r.Ports) == 0 || slices.ContainsFunc(ports, func(port uint16) bool {
			return slices.ContainsFunc(r.Ports, func(q PortRange) bool { return q.Contains(port) })
		})
	}
	switch r.Protocol {
	case ProtocolTLS:
		return "protocol tls"
	case TCP:
		if on(portHTTP, portHTTPS) {
			return "protocol tcp on a port of the web"
		}
	case Any:
		if on(portHTTP, portHTTPS) {
			return "protocol any on a port of the web"
		}
	case UDP:
		if on(portHTTPS) {
			return "protocol udp on the port of QUIC"
		}
	case HTTPS, HTTP, ICMP:
	}
	return ""
}

func inspectsAll(p *Policy) bool {
	return p != nil && (p.TLS.Inspect == InspectAll || inspectsAll(p.Floor))
}

func isPublic(p *Policy) bool {
	return p == nil || p.Egress.Default == DefaultPublic && isPublic(p.Floor)
}

// mayReach reports whether p may allow https to a name under b.
func mayReach(p *Policy, b hostname.Pattern) bool {
	return slices.ContainsFunc(p.Egress.Allow, func(r Rule) bool {
		return r.Protocol == HTTPS && (len(r.CIDRs) > 0 || slices.ContainsFunc(r.Hosts, b.Overlaps))
	}) || slices.ContainsFunc(p.Hosts, func(h HostMapping) bool { return b.Match(h.Name) })
}
