package policies

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/msb-project/msb/hostname"
)

// checkWithin checks the ranges that the names of a rule may have.
func (f *faults) checkWithin(key string, allow bool, r Rule) {
	switch {
	case len(r.Within) == 0:
		return
	case !allow:
		f.add(key+".within", "a deny rule holds whatever addresses a name has", "leave within out")
		return
	case len(r.Hosts) == 0:
		f.add(key+".within", "within says which addresses the names of hosts may have, and there are no hosts", "leave within out: cidrs are the addresses")
		return
	}
	inside := false
	for i, p := range r.Within {
		place := fmt.Sprintf("%s.within[%d]", key, i)
		inside = inside || OpensSpecial(p)
		switch {
		case p.Addr().Is4In6() || !p.IsValid() || p != p.Masked():
			f.add(place, fmt.Sprintf("%q is not a plain range", p), "write IPv4 ranges as IPv4, without bits beyond the length")
		case own(p):
			f.add(place, fmt.Sprintf("%s is the host itself, which no rule opens", p), "map the name to it in [hosts]")
		case OpensSpecial(p) && tooWide(p):
			f.add(place, fmt.Sprintf("%s would open nearly every special-purpose range", p), "name the ranges that are meant, or \"0.0.0.0/0\" and \"::/0\" for every public address")
		}
	}
	for i, h := range r.Hosts {
		if inside && anybodys(h) {
			f.add(fmt.Sprintf("%s.hosts[%d]", key, i), fmt.Sprintf("anybody can get a name under %q, and would choose the address inside that it leads to", h), "name the hosts, or a domain of your own below it")
		}
	}
}

// anybodys reports whether anyone can register names under a pattern. A
// top-level domain that the list of public suffixes doesn't know is nobody's but the
// network's own.
func anybodys(h hostname.Pattern) bool {
	if !h.Wildcard() || h.Any() {
		return h.Any()
	}
	base := h.Base().String()
	suffix, icann := publicsuffix.PublicSuffix(base)
	return suffix == base && (icann || strings.Contains(suffix, "."))
}

// checkPairs refuses what stood for a name inside before there was within: a rule for
// the name, and a private rule that opens where it leads. A private rule is about
// addresses alone, so the name would reach nothing, and the private rule would let
// out to its address what the rule for the name refuses.
//
// A private rule is taken for one half of a pair if the name can only be one inside,
// or if it opens nothing but ports of rules for names. Rules for names that a preset
// has, and names of which another rule says where they may lead, are no halves: a
// network's own rule may stand beside them.
func (f *faults) checkPairs(p *Policy) {
	if !slices.ContainsFunc(p.Egress.Allow, func(r Rule) bool { return r.Private && len(r.CIDRs) > 0 }) {
		return
	}
	type named struct {
		Rule
		inside bool
	}
	var all []named
	known := presetNames()
	for _, h := range p.Egress.Allow {
		if len(h.Hosts) > 0 && !namesLead(p, h) && !knownPublic(known, h) {
			all = append(all, named{h, slices.ContainsFunc(h.Hosts, insideName)})
		}
	}
	for _, r := range p.Egress.Allow {
		if !r.Private || len(r.CIDRs) == 0 {
			continue
		}
		halves := make([]Rule, 0, len(all))
		var inside []Rule
		for _, h := range all {
			if !overlap(r, h.Rule) {
				continue
			}
			if h.inside {
				inside = append(inside, h.Rule)
			}
			halves = append(halves, h.Rule)
		}
		switch {
		case len(inside) > 0:
			f.addPair(r, inside)
		case len(halves) > 0 && nothingElse(r, halves):
			f.addPair(r, halves)
		}
	}
}

const (
	// mostHalves is how many rules for names a fault writes out, and maxHalves bounds their text, in bytes.
	mostHalves = 10
	maxHalves  = 4 << 10
)

// addPair says what to write in place of a private rule and of rules for names.
func (f *faults) addPair(r Rule, halves []Rule) {
	if len(f.list) > maxFaults { // its text wouldn't be shown
		f.more++
		return
	}
	only, others := nothingElse(r, halves), len(halves)-mostHalves
	names := make([]string, 0, mostHalves)
	var flags []string
	w := &writer{}
	for _, h := range halves[:min(len(halves), mostHalves)] {
		names = append(names, fmt.Sprintf("%q", h.Name))
		if strings.HasPrefix(h.Name, flagName) {
			flags = append(flags, withinFlag(h, r.CIDRs))
			continue
		}
		h.Within = r.CIDRs
		w.rule("allow", h, Comments{})
	}
	list := strings.Join(names, ", ")
	if others > 0 {
		list += fmt.Sprintf(" and %d more", others)
	}
	place := "in place of " + list
	if only {
		place += fmt.Sprintf(" and %q", r.Name)
	}
	if len(flags) > 0 {
		place += ":\n    " + strings.Join(flags, "\n    ")
	}
	rules := strings.TrimRight(w.String(), "\n")
	if len(rules) > maxHalves {
		rules = strings.ToValidUTF8(rules[:maxHalves], "") + "\n..."
	}
	f.addAt(r.Pos, "", fmt.Sprintf("the private rule %q opens addresses, whatever they are called, and the names of %s reach private addresses through ranges of their own only", r.Name, list),
		fmt.Sprintf("write %s%s\n  or, in a rule whose names are public and have nothing to do with the range, within = [\"0.0.0.0/0\", \"::/0\"]",
			place, strings.ReplaceAll(rules, "\n", "\n    ")))
}

// insideName reports whether only a network's own resolver can know the names of a
// pattern: by its top-level domain, or by a label that says so.
func insideName(h hostname.Pattern) bool {
	labels := strings.Split(h.Base().String(), ".")
	switch labels[len(labels)-1] {
	case "private", "home", "test":
		return true
	}
	base := h.Base().String()
	return strings.HasSuffix(base, "home.arpa") || strings.HasSuffix(base, "cluster.local") || slices.ContainsFunc(labels, func(l string) bool {
		return l == "internal" || l == "intranet" || l == "corp" || l == "lan"
	})
}

// namesLead reports whether all of h's names have a rule that says where they may lead.
func namesLead(p *Policy, h Rule) bool {
	return !slices.ContainsFunc(h.Hosts, func(name hostname.Pattern) bool {
		return !slices.ContainsFunc(p.Egress.Allow, func(o Rule) bool { return len(o.Within) > 0 && slices.ContainsFunc(o.Hosts, name.Overlaps) })
	})
}

// presetNames are the hosts of all presets, which takes a while.
func presetNames() (known []hostname.Pattern) {
	for _, name := range Presets() {
		if p, err := Preset(name); err == nil {
			for _, r := range p.Egress.Allow {
				known = append(known, r.Hosts...)
			}
		}
	}
	return known
}

// knownPublic reports whether every name of h is one of known, those of the presets, or "*".
func knownPublic(known []hostname.Pattern, h Rule) bool {
	return !slices.ContainsFunc(h.Hosts, func(name hostname.Pattern) bool {
		return !name.Any() && !slices.ContainsFunc(known, func(k hostname.Pattern) bool { return !k.Any() && k.Covers(name) })
	})
}

// nothingElse reports whether the private rule r opens no port but those of the rules
// for names.
func nothingElse(r Rule, names []Rule) bool {
	var open []PortRange
	for _, h := range names {
		switch {
		case h.Protocol != Any && r.Protocol == Any:
		case len(h.Ports) == 0:
			return true
		default:
			open = append(open, h.Ports...)
		}
	}
	slices.SortFunc(open, func(a, b PortRange) int { return cmp.Compare(a.First, b.First) })
	ports := r.Ports
	if len(ports) == 0 {
		ports = []PortRange{{1, 65535}}
	}
	return !slices.ContainsFunc(ports, func(p PortRange) bool {
		next := int(p.First) // the first port of p that isn't open so far
		for _, o := range open {
			if int(o.First) <= next {
				next = max(next, int(o.Last)+1)
			}
		}
		return next <= int(p.Last)
	})
}

// overlap reports whether some flow to a name of h, at an address of r, would be of both.
func overlap(r, h Rule) bool {
	if len(h.Hosts) == 0 || h.Protocol != Any && r.Protocol != Any && h.Protocol.Transport() != r.Protocol.Transport() {
		return false
	}
	return len(h.Ports) == 0 || len(r.Ports) == 0 || slices.ContainsFunc(h.Ports, func(p PortRange) bool {
		return slices.ContainsFunc(r.Ports, func(q PortRange) bool { return p.First <= q.Last && q.First <= p.Last })
	})
}

// Evasions lists the rules for names whose methods and paths don't hold for whoever
// dials an address without asking for its name, because a private rule opens it.
func Evasions(p *Policy) []Error {
	f := &faults{file: p.File}
	for _, h := range p.Egress.Allow {
		if len(h.Methods)+len(h.Paths) == 0 {
			continue
		}
		for _, r := range p.Egress.Allow {
			if r.Private && overlap(r, h) && slices.ContainsFunc(h.Within, func(a netip.Prefix) bool { return slices.ContainsFunc(r.CIDRs, a.Overlaps) }) {
				f.addAt(h.Pos, "", fmt.Sprintf("methods and paths of the rule %q hold for connections to its names; the private rule %q lets out to their addresses what never asked for a name", h.Name, r.Name),
					fmt.Sprintf("take the ports of %q or its addresses out of %q", h.Name, r.Name))
			}
		}
	}
	return f.list
}
