package policies

import (
	"fmt"
	"slices"

	"github.com/msb-project/msb/hostname"
)

// Tighten returns p under an operator's floor: what both allow, and nothing
// else. Neither argument is changed.
//
// Rules, names, [hosts] targets and [ssh] are intersected by judging twice: the
// result holds p's, and its Floor holds the operator's. The rest is intersected
// here: the smaller of each limit and lifetime, enforcing unless both only
// report, inspecting if either does, the operator's resolvers and upstream
// proxy. Where p asks for something that has no smaller form (a target, a
// resolver, a proxy, a bypass), or takes something from the host that the floor
// doesn't name (tighten_grants.go), that is an error in p, an ErrorList. The
// floor's own sandbox, secrets and extra roots are not taken over.
//
// If p has a floor already, the new one goes below it: both hold.
func Tighten(floor, p *Policy) (*Policy, error) {
	out := *p
	out.Floor = floor
	if p.Floor != nil {
		below, err := Tighten(floor, p.Floor)
		if err != nil {
			return nil, err
		}
		out.Floor = below
	}
	f := &faults{file: p.File}
	if !reports(floor) || !reports(p) {
		enforce(&out)
	}
	f.tightenHosts(floor, p)
	f.tightenDNS(floor, &out)
	f.tightenTLS(floor, &out)
	free := mappedFreely(floor)
	for _, s := range p.Secrets {
		f.tightenSecret(floor, free, s)
		f.nameSecret(floor, s)
	}
	f.nameRanges(floor, p)
	f.nameImage(floor, p)
	f.nameFiles(floor, p)
	tightenLimits(&floor.Limits, &out.Limits)
	shorten(f)
	if err := f.err(); err != nil {
		return nil, err
	}
	return &out, nil
}

// reports tells whether p and every floor below it only report.
func reports(p *Policy) bool {
	return p.Egress.Mode == Report && (p.Floor == nil || reports(p.Floor))
}

// enforces tells whether p and every floor below it enforce.
func enforces(p *Policy) bool {
	return p.Egress.Mode == Enforce && (p.Floor == nil || enforces(p.Floor))
}

// enforce makes p enforce, and every floor below it: each of them is an engine
// of its own, and one that only reports would let through what it denies.
func enforce(p *Policy) {
	p.Egress.Mode = Enforce
	if p.Floor == nil || enforces(p.Floor) {
		return
	}
	floor := *p.Floor
	enforce(&floor)
	p.Floor = &floor
}

// tightenHosts refuses targets that the floor doesn't map in the same way:
// [hosts] is the only way to the host itself.
func (f *faults) tightenHosts(floor, p *Policy) {
	for _, h := range p.Hosts {
		same := func(o HostMapping) bool { return o.Name == h.Name && o.Target == h.Target }
		if !slices.ContainsFunc(floor.Hosts, same) {
			f.addAt(h.Pos, joinKey("hosts", h.Name.String()), fmt.Sprintf("the operator's floor doesn't map this name to %s", h.Target), "take the line out, or have it added to the floor")
		}
	}
}

// tightenDNS lets p ask only resolvers that the floor asks. A resolver's address
// is dialled from the host, so a free choice of it would be a way past every
// rule.
func (f *faults) tightenDNS(floor, out *Policy) {
	system := []Server{{Kind: ServerSystem}}
	if slices.Equal(out.DNS.Servers, system) {
		out.DNS.Servers = floor.DNS.Servers
	}
	for _, s := range out.DNS.Servers {
		if !slices.Contains(floor.DNS.Servers, s) {
			f.add("dns.servers", fmt.Sprintf("the operator's floor doesn't ask %s", s), "leave servers out to use the floor's")
		}
	}
	out.DNS.MinTTL = min(out.DNS.MinTTL, floor.DNS.MinTTL)
	out.DNS.MaxTTL = min(out.DNS.MaxTTL, floor.DNS.MaxTTL)
}

// tightenTLS keeps what the floor wants inspected, and its upstream proxy. The
// proxy's address is dialled from the host, as a resolver's is.
func (f *faults) tightenTLS(floor, out *Policy) {
	switch {
	case out.TLS.Via == "":
		out.TLS.Via = floor.TLS.Via
	case out.TLS.Via != floor.TLS.Via:
		f.add("tls.via", "the operator's floor doesn't name this proxy", "leave via out to use the floor's")
	}
	if floor.TLS.Inspect == InspectAll {
		out.TLS.Inspect = InspectAll
	} else if out.TLS.Inspect == InspectNone {
		out.TLS.Inspect = floor.TLS.Inspect
	}
	for _, b := range out.TLS.Bypass {
		covered := false
		for _, o := range floor.TLS.Bypass {
			covered = covered || o.Covers(b)
		}
		if covered {
			continue
		}
		if floor.TLS.Inspect == InspectAll {
			f.add("tls.bypass", fmt.Sprintf("the operator's floor inspects everything, %s too", b.Display()), "take the name out")
			continue
		}
		for _, r := range slices.Concat(floor.Egress.Allow, floor.Egress.Deny) {
			if len(r.Methods)+len(r.Paths) > 0 && slices.ContainsFunc(r.Hosts, b.Overlaps) {
				f.add("tls.bypass", fmt.Sprintf("the operator's rule %q inspects names under %s", r.Name, b.Display()), "take the name out")
				covered = true
			}
		}
		if r, ok := watches(floor); ok && !covered && mayReach(floor, b) {
			f.add("tls.bypass", fmt.Sprintf("for the operator's rule %q all https is inspected, %s too", r.Name, b.Display()), "take the name out, or have it added to the floor's bypass")
		}
	}
}

// tightenSecret refuses secrets that could never be used, so that nobody looks
// for the reason at run time.
func (f *faults) tightenSecret(floor *Policy, free []hostname.Name, s Secret) {
	for _, h := range s.Hosts {
		key := joinKey("secrets", s.Name)
		_, shut := shutBy(floor, h)
		if reach, _ := secretReach(floor, free, h); shut || !reach {
			f.addAt(s.Pos, key, fmt.Sprintf("the operator's floor doesn't allow https to %s, port %d", h.Pattern.Display(), h.port()), "take the host out, or have it added to the floor")
		}
		if _, b, ok := firstOverlap(s.hostPatterns(), floor.TLS.Bypass); ok {
			f.addAt(s.Pos, key, fmt.Sprintf("the operator's floor keeps %s from being inspected, and no secret goes there", b.Display()), "take the host out")
		}
	}
}

// tightenLimits takes the smaller of each limit; 0 is unlimited.
func tightenLimits(floor, out *Limits) {
	out.TCPConnections = smaller(floor.TCPConnections, out.TCPConnections)
	out.UDPFlows = smaller(floor.UDPFlows, out.UDPFlows)
	out.DNSPerSecond = smaller(floor.DNSPerSecond, out.DNSPerSecond)
	out.EgressBytes = smaller(floor.EgressBytes, out.EgressBytes)
	out.EgressRate = smaller(floor.EgressRate, out.EgressRate)
}

func smaller[T int | int64](a, b T) T {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
