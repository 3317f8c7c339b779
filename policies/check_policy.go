package policies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/msb-project/msb/hostname"
)

// checkTogether checks what the sound parts of a whole policy mean for each
// other; checkNames needs no sound parts.
func (f *faults) checkTogether(p *Policy) {
	f.checkPairwise(p)
	f.checkPairs(p)
	f.checkInspection(p)
	free := mappedFreely(p)
	for _, s := range p.Secrets {
		f.checkSecretReach(p, free, s)
	}
}

// checkPairwise is the part of checkTogether that is about two things each, whatever others there are.
func (f *faults) checkPairwise(p *Policy) {
	f.checkCovered(p)
	for i, s := range p.Secrets {
		for _, t := range p.Secrets[:i] {
			f.checkShapes(s, t)
		}
	}
	if p.DNS.MinTTL > p.DNS.MaxTTL {
		f.add("dns.min_ttl", fmt.Sprintf("%s is above max_ttl, %s", p.DNS.MinTTL, p.DNS.MaxTTL), "lower the one or raise the other")
	}
}

// checkNames refuses two things of one name.
func (f *faults) checkNames(p *Policy) {
	type named struct {
		what, name string
		pos        Position
	}
	var all []named
	for _, list := range [][]Rule{p.Egress.Allow, p.Egress.Deny} {
		for _, r := range list {
			all = append(all, named{"rule", r.Name, r.Pos})
		}
	}
	for _, r := range p.Ingress.Allow {
		all = append(all, named{"rule", r.Name, r.Pos})
	}
	for _, h := range p.Hosts {
		all = append(all, named{"host", h.Name.String(), h.Pos})
	}
	for _, s := range p.Secrets {
		all = append(all, named{"secret", s.Name, s.Pos})
	}
	seen := map[[2]string]Position{}
	for _, n := range all {
		if n.name == "" { // faulty, and said already
			continue
		}
		id := [2]string{n.what, n.name}
		first, dup := seen[id]
		if !dup {
			seen[id] = n.pos
			continue
		}
		message := fmt.Sprintf("there is another %s called %q", n.what, n.name)
		if first.Line > 0 {
			message += " at " + first.String()
		}
		f.addAt(n.pos, "", message, "names stand in verdicts and logs; give each its own")
	}
}

// checkCovered refuses allow rules that a deny rule of the same file beats
// entirely. Across files that is what a deny is for: taking something out of a
// preset.
func (f *faults) checkCovered(p *Policy) {
	for _, a := range p.Egress.Allow {
		for _, d := range p.Egress.Deny {
			if a.Pos.File == d.Pos.File && covers(d, a) {
				message := fmt.Sprintf("the rule %q can never match: the deny rule %q covers all of it", a.Name, d.Name)
				f.addAt(a.Pos, "", message, "take one of the two out")
				break
			}
		}
	}
}

// covers reports whether the deny rule d beats the allow rule a whatever the
// flow.
func covers(d, a Rule) bool {
	if len(d.Methods)+len(d.Paths) > 0 {
		return false
	}
	if d.Protocol != Any && d.Protocol.Transport() != a.Protocol.Transport() {
		return false
	}
	if len(d.Ports) > 0 && (len(a.Ports) == 0 || slices.ContainsFunc(a.Ports, func(r PortRange) bool {
		return !slices.ContainsFunc(d.Ports, func(q PortRange) bool { return q.First <= r.First && r.Last <= q.Last })
	})) {
		return false
	}
	if len(d.Hosts)+len(d.CIDRs) == 0 {
		return true
	}
	for _, h := range a.Hosts {
		if !slices.ContainsFunc(d.Hosts, func(q hostname.Pattern) bool { return q.Covers(h) }) {
			return false
		}
	}
	for _, c := range a.CIDRs {
		covered := false
		for _, q := range d.CIDRs {
			covered = covered || q.Bits() <= c.Bits() && q.Overlaps(c)
		}
		if !covered {
			return false
		}
	}
	return true
}

// checkInspection refuses what needs an inspected connection where [tls] rules
// inspection out.
func (f *faults) checkInspection(p *Policy) {
	for _, list := range [][]Rule{p.Egress.Allow, p.Egress.Deny} {
		for _, r := range list {
			if r.Protocol == HTTP || len(r.Methods)+len(r.Paths) == 0 {
				continue
			}
			if p.TLS.Inspect == InspectNone {
				f.addAt(r.Pos, "", fmt.Sprintf("the rule %q has methods or paths, which are seen in inspected connections only, and tls.inspect is \"none\"", r.Name), "write inspect = \"auto\"")
			}
			if h, b, ok := firstOverlap(r.Hosts, p.TLS.Bypass); ok {
				f.addAt(r.Pos, "", fmt.Sprintf("the rule %q has methods or paths for %s, which tls.bypass %q keeps from being inspected", r.Name, h.Display(), b), "take the name out of one of the two")
			}
		}
	}
	for _, s := range p.Secrets {
		if p.TLS.Inspect == InspectNone {
			f.addAt(s.Pos, joinKey("secrets", s.Name), "a value is put into inspected connections only, and tls.inspect is \"none\"", "write inspect = \"auto\"")
		}
		if h, b, ok := firstOverlap(s.hostPatterns(), p.TLS.Bypass); ok {
			f.addAt(s.Pos, joinKey("secrets", s.Name), fmt.Sprintf("its host %s is under tls.bypass %q, where no secret goes", h.Display(), b), "take the name out of one of the two")
		}
	}
}

func firstOverlap(a, b []hostname.Pattern) (hostname.Pattern, hostname.Pattern, bool) {
	for _, x := range a {
		for _, y := range b {
			if x.Overlaps(y) {
				return x, y, true
			}
		}
	}
	return hostname.Pattern{}, hostname.Pattern{}, false
}

// checkSecretReach refuses secrets for hosts that they can't reach.
func (f *faults) checkSecretReach(p *Policy, free []hostname.Name, s Secret) {
	for i, h := range s.Hosts {
		key := fmt.Sprintf("%s.hosts[%d]", joinKey("secrets", s.Name), i)
		reach, other := secretReach(p, free, h)
		d, shut := shutBy(p, h)
		switch {
		case shut && d.Pos.File == s.Pos.File: // across files that takes something out of an include
			f.addAt(s.Pos, key, fmt.Sprintf("the deny rule %q covers all of %s, and deny beats allow", d.Name, h.Display()), "take the host or the rule out")
		case shut, reach:
		case other == nil:
			f.addAt(s.Pos, key, "no rule allows "+h.Pattern.Display(), fmt.Sprintf("add a rule with hosts = [%q] and protocol = \"https\"", h.Pattern))
		case other.Protocol != HTTPS:
			f.addAt(s.Pos, key, fmt.Sprintf("%s is allowed by the rule %q only, which isn't https, and values are sent over verified https only", h.Pattern.Display(), other.Name), "give that rule protocol = \"https\", or add one that has it")
		default:
			open := SecretHost{h.Pattern, other.Ports[0].First}
			f.addAt(s.Pos, key, fmt.Sprintf("the rule %q opens other ports of %s, and the value may go to port %d only", other.Name, h.Pattern.Display(), h.port()), fmt.Sprintf("write hosts = [%q] here, or ports = [%d] there", open, h.port()))
		}
	}
}

// secretReach reports whether some name of h is allowed over https at its port,
// or else the rule that comes closest: https at another port, another protocol. free is
// mappedFreely(p).
func secretReach(p *Policy, free []hostname.Name, h SecretHost) (bool, *Rule) {
	if p.Egress.Default == DefaultPublic || slices.ContainsFunc(free, h.Pattern.Match) {
		return true, nil
	}
	var other *Rule
	for i := range p.Egress.Allow {
		r := &p.Egress.Allow[i]
		_, _, names := firstOverlap(r.Hosts, []hostname.Pattern{h.Pattern})
		switch {
		case !names:
		case r.Protocol == HTTPS && (len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(q PortRange) bool { return q.Contains(h.port()) })):
			return true, nil
		case other == nil || r.Protocol == HTTPS:
			other = r
		}
	}
	return false, other
}

// mappedFreely are the names that [hosts] maps and no allow rule names: every port of
// such a name leads to its target.
func mappedFreely(p *Policy) (free []hostname.Name) {
	for _, m := range p.Hosts {
		if !slices.ContainsFunc(p.Egress.Allow, func(r Rule) bool {
			return slices.ContainsFunc(r.Hosts, func(q hostname.Pattern) bool { return q.Match(m.Name) })
		}) {
			free = append(free, m.Name)
		}
	}
	return free
}

// shutBy returns a deny rule that lets nothing out to any name of h at its port.
func shutBy(p *Policy, h SecretHost) (Rule, bool) {
	flow := Rule{Hosts: []hostname.Pattern{h.Pattern}, Ports: []PortRange{{h.port(), h.port()}}, Protocol: HTTPS}
	for _, d := range p.Egress.Deny {
		if (d.Protocol == Any || d.Protocol == TCP || d.Protocol == HTTPS) && covers(d, flow) {
			return d, true
		}
	}
	return Rule{}, false
}

// checkShapes refuses two secrets of which one's placeholder could begin the
// other's.
func (f *faults) checkShapes(s, t Secret) {
	a, errA := ParseShape(s.Placeholder)
	b, errB := ParseShape(t.Placeholder)
	if errA != nil || errB != nil {
		return // reported where they stand
	}
	if a.mayPrefix(b) || b.mayPrefix(a) {
		f.addAt(s.Pos, joinKey("secrets", s.Name)+".placeholder",
			fmt.Sprintf("%q and %q of %s can begin alike at different lengths, so one may be taken for the other", s.Placeholder, t.Placeholder, t.Name),
			"give both the same length, or different beginnings")
	}
}

// cutPort splits "name:443" for a remedy; the hosts of a rule hold no ports.
func cutPort(s string) (host, port string, ok bool) {
	host, port, ok = strings.Cut(s, ":")
	if _, err := parsePorts(port); err != nil {
		return "", "", false
	}
	_, err := hostname.ParsePattern(host)
	return host, port, ok && err == nil
}
