package learn

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// hostsRule is what the engine names a verdict after where a line of [hosts]
// alone decided: "hosts.registry.internal".
const hostsRule = "hosts."

// mappedUse is a way in which a line of [hosts] was used.
type mappedUse struct {
	name      string
	port      uint16
	transport policies.Protocol
}

// throughHosts counts a flow that a line of [hosts] let through. The line is
// kept, so that it needs no rule.
func (c *Collector) throughHosts(name string, ev audit.Event) {
	u := mappedUse{name: name, port: ev.Port, transport: transport(ev)}
	if _, known := c.mapped[u]; !known && len(c.mapped) >= maxDestinations {
		c.over++
		return
	}
	c.mapped[u]++
}

// Watch is the policy under which a capture is judged to learn from it: base in
// report mode.
func Watch(base *policies.Policy) *policies.Policy {
	p := *base
	p.Egress.Mode = policies.Report
	p.Floor = nil
	return &p
}

// narrowing is the rules of base that speak of a name of [hosts], each for that
// name alone.
func narrowing(base *policies.Policy, name hostname.Name) []policies.Rule {
	var rules []policies.Rule
	for _, r := range base.Egress.Allow {
		if slices.ContainsFunc(r.Hosts, func(p hostname.Pattern) bool { return p.Match(name) }) {
			r.Name += " at " + name.String()
			r.Hosts, r.CIDRs, r.Private = []hostname.Pattern{hostname.Exactly(name)}, nil, false
			rules = append(rules, r)
		}
	}
	return rules
}

// keepNarrowing keeps what base said of names of [hosts] that were not used by
// their rules: their lines stay, and would let everything through.
func (c *Collector) keepNarrowing(p, base *policies.Policy, comments map[string]string) {
	used := c.named()
	for _, m := range base.Hosts {
		if used[m.Name] {
			continue
		}
		for _, r := range narrowing(base, m.Name) {
			comments[r.Name] = "not used; kept because it narrows the line in [hosts]"
			p.Egress.Allow = append(p.Egress.Allow, r)
		}
	}
}

// named is the names that a rule is learned for.
func (c *Collector) named() map[hostname.Name]bool {
	used := map[hostname.Name]bool{}
	for d := range c.seen {
		used[d.name] = true
	}
	return used
}

// mappedHead is the part of the head comment about [hosts].
func (c *Collector) mappedHead(hosts []policies.HostMapping) string {
	var b strings.Builder
	used := c.named()
	if len(c.mapped) > 0 {
		b.WriteString("\nLet through by lines of [hosts], which are kept:\n")
	}
	for _, u := range slices.SortedFunc(maps.Keys(c.mapped), func(a, b mappedUse) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.port, b.port), cmp.Compare(a.transport, b.transport))
	}) {
		if n, err := hostname.Parse(u.name); err == nil {
			used[n] = true
		}
		fmt.Fprintf(&b, "  %s %v %d: %s\n", audit.Printable(u.name), u.transport, u.port, plural(c.mapped[u], "flow"))
	}
	var idle []string
	for _, m := range hosts {
		if !used[m.Name] {
			idle = append(idle, m.Name.String())
		}
	}
	if len(idle) > 0 {
		slices.Sort(idle)
		b.WriteString("\nLines of [hosts] that nothing used; take out what isn't needed:\n")
		for _, n := range idle {
			b.WriteString("  " + n + "\n")
		}
	}
	return b.String()
}
