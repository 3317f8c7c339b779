package egress

import (
	"net/netip"

	"github.com/gaissmai/bart"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// ruleIndex finds the rules of one list by destination.
type ruleIndex struct {
	names    nameIndex[*rule]
	prefixes bart.Table[*prefixNode]
	anywhere []*rule // deny rules without a destination
	all      []*rule
}

// prefixNode is the rules of one prefix. Longest-prefix match finds the
// narrowest node; the wider ones hang behind it.
type prefixNode struct {
	rules  []*rule
	wider  *prefixNode
	prefix netip.Prefix
}

// compileIndex compiles rules, which are of list ("allow" or "deny").
func compileIndex(rules []policies.Rule, list string) (*ruleIndex, error) {
	x := &ruleIndex{}
	seen := make(map[string]bool)
	prefixes := make(map[netip.Prefix]*prefixNode)
	for i := range rules {
		r, err := compileRule(&rules[i], i, list)
		if err != nil {
			return nil, err
		}
		x.all = append(x.all, r)
		for _, h := range rules[i].Hosts {
			if first(seen, h.String()+r.key()) {
				x.names.add(h, r)
			}
		}
		for _, p := range rules[i].CIDRs {
			p = plainPrefix(p)
			if !first(seen, p.String()+r.key()) {
				continue
			}
			if prefixes[p] == nil {
				prefixes[p] = &prefixNode{prefix: p}
				x.prefixes.Insert(p, prefixes[p])
			}
			prefixes[p].rules = append(prefixes[p].rules, r)
		}
		if len(rules[i].Hosts)+len(rules[i].CIDRs) == 0 {
			x.anywhere = append(x.anywhere, r)
		}
	}
	for p, node := range prefixes {
		if p.Bits() > 0 {
			wider := netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked()
			_, node.wider, _ = x.prefixes.LookupPrefixLPM(wider)
		}
	}
	return x, nil
}

func first(seen map[string]bool, key string) bool {
	if seen[key] {
		return false
	}
	seen[key] = true
	return true
}

// plainPrefix unmaps ::ffff:a.b.c.d/n, as addresses are unmapped before they
// are looked up, and clears the bits behind the prefix.
func plainPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

// eachByAddr calls yield with the rules whose prefixes hold a, narrowest first,
// and the prefix. a is unmapped and has no zone.
func (x *ruleIndex) eachByAddr(a netip.Addr, yield func(r *rule, by netip.Prefix)) {
	node, _ := x.prefixes.Lookup(a)
	for ; node != nil; node = node.wider {
		for _, r := range node.rules {
			yield(r, node.prefix)
		}
	}
}

// eachByName calls yield with the rules whose hosts match n; exact says that a
// pattern without a star did.
func (x *ruleIndex) eachByName(n hostname.Name, yield func(r *rule, exact bool)) {
	x.names.each(n, func(r *rule, exact bool) bool { yield(r, exact); return true })
}
