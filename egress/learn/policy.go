package learn

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// Policy returns the policy file that would have let through what was seen:
// base (which may be nil) with its allow rules replaced by one for each host,
// default deny and enforced. Lines of [hosts] stay, with the rules that narrow
// them.
func (c *Collector) Policy(base *policies.Policy) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := policies.Default()
	if base != nil {
		copied := *base
		p = &copied
	}
	p.Floor, p.Include = nil, nil
	p.Egress = policies.EgressRules{Deny: p.Egress.Deny}
	comments := map[string]string{}
	for _, d := range c.order {
		if !c.keepRequests(p, base, d, comments) {
			c.addRule(p, d, comments)
		}
	}
	c.addPrivate(p, comments)
	if base != nil {
		c.keepNarrowing(p, base, comments)
	}
	return policies.EncodeWith(p, policies.Comments{
		Head: c.head(p.Hosts),
		Rule: func(r policies.Rule) string { return comments[r.Name] },
	})
}

// addRule adds the rule for one destination. Methods and paths stand in it only
// if no flow was let through that nobody looked into.
func (c *Collector) addRule(p *policies.Policy, d destination, comments map[string]string) {
	u := c.seen[d]
	r := policies.Rule{Protocol: d.protocol}
	subject := d.addr.String()
	if d.name.IsZero() {
		r.CIDRs = []netip.Prefix{netip.PrefixFrom(d.addr, d.addr.BitLen())}
	} else {
		r.Hosts = []hostname.Pattern{hostname.Exactly(d.name)}
		subject = d.name.String()
		r.Within = u.within()
	}
	r.Name = subject + " " + d.protocol.String()
	if d.protocol != policies.ICMP {
		r.Ports = []policies.PortRange{{First: d.port, Last: d.port}}
		r.Name += fmt.Sprintf(" %d", d.port)
	}
	if u.requests > 0 && u.unseen == 0 && !d.name.IsZero() {
		r.Methods, r.Paths = u.methodList(), u.pathList()
	}
	comments[r.Name] = u.String()
	p.Egress.Allow = append(p.Egress.Allow, r)
}

// keepRequests adds what base says of the requests to a host whose connections
// were looked into and of which no request was seen: it reports whether base
// says anything.
func (c *Collector) keepRequests(p, base *policies.Policy, d destination, comments map[string]string) bool {
	u := c.seen[d]
	if base == nil || u.requests > 0 || u.unseen > 0 || u.inspected == 0 || d.name.IsZero() {
		return false
	}
	var rules []policies.Rule
	for _, r := range narrowing(base, d.name) {
		atPort := slices.ContainsFunc(r.Ports, func(p policies.PortRange) bool { return p.First <= d.port && d.port <= p.Last })
		if r.Protocol != d.protocol || !atPort {
			continue
		}
		if len(r.Methods) == 0 && len(r.Paths) == 0 {
			return false // it lets every request through
		}
		r.Ports = []policies.PortRange{{First: d.port, Last: d.port}}
		rules = append(rules, r)
	}
	for _, r := range rules {
		r.Name = fmt.Sprintf("%s %d", r.Name, d.port)
		comments[r.Name] = u.String() + "; no request is in the capture: methods and paths are those of the policy it was judged by"
		p.Egress.Allow = append(p.Egress.Allow, r)
	}
	return len(rules) > 0
}

// addPrivate adds the rules that open special addresses, one for each.
func (c *Collector) addPrivate(p *policies.Policy, comments map[string]string) {
	list := slices.SortedFunc(maps.Keys(c.private), func(a, b private) int {
		return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.port, b.port), cmp.Compare(a.protocol, b.protocol))
	})
	for _, d := range list {
		r := policies.Rule{
			Name:     fmt.Sprintf("%v %v %d private", d.addr, d.protocol, d.port),
			CIDRs:    []netip.Prefix{netip.PrefixFrom(d.addr, d.addr.BitLen())},
			Protocol: d.protocol, Private: true,
		}
		if d.protocol != policies.ICMP {
			r.Ports = []policies.PortRange{{First: d.port, Last: d.port}}
		}
		comments[r.Name] = plural(c.private[d], "flow") + " to an address that isn't public: is it meant to be reached?"
		p.Egress.Allow = append(p.Egress.Allow, r)
	}
}

// within is where the name led: nil for public addresses alone.
func (u *use) within() (list []netip.Prefix) {
	for _, a := range slices.SortedFunc(maps.Keys(u.inside), netip.Addr.Compare) {
		list = append(list, netip.PrefixFrom(a, a.BitLen()))
	}
	if len(list) > 0 && u.public {
		list = append(list, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
	}
	return list
}

func (u *use) methodList() []string {
	if u.anyMethod {
		return nil
	}
	return slices.Sorted(maps.Keys(u.methods))
}

// pathList is the paths that were seen, or their directories if there are many.
func (u *use) pathList() []string {
	if u.anyPath {
		return nil
	}
	list := u.paths
	for len(list) > maxPaths {
		wider := map[string]struct{}{}
		for p := range list {
			wider[directory(strings.TrimSuffix(p, "/**"))+"/**"] = struct{}{}
		}
		if len(wider) == len(list) {
			return nil
		}
		list = wider
	}
	return slices.Sorted(maps.Keys(list))
}

// String is the comment above a rule.
func (u *use) String() string {
	s := plural(u.flows, "flow")
	if u.requests > 0 {
		s += ", " + plural(u.requests, "request")
	}
	if u.denied > 0 {
		s += fmt.Sprintf(", %d of them not allowed so far", u.denied)
	}
	return s
}

func plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// head is the comment above everything: what the rules don't say.
func (c *Collector) head(hosts []policies.HostMapping) string {
	var b strings.Builder
	b.WriteString("Learned from what was seen. Read each rule, and take out what shouldn't be allowed.\n")
	if c.over > 0 {
		fmt.Fprintf(&b, "%d more events were seen than could be kept: this policy is not complete.\n", c.over)
	}
	if len(c.notes) > 0 {
		b.WriteString("\nLeft shut:\n")
		for _, k := range slices.Sorted(maps.Keys(c.notes)) {
			fmt.Fprintf(&b, "  %s (%d)\n", k, c.notes[k])
		}
	}
	b.WriteString(c.mappedHead(hosts))
	used := c.named()
	for u := range c.mapped {
		if n, err := hostname.Parse(u.name); err == nil {
			used[n] = true
		}
	}
	var idle []string
	for n := range c.lookups {
		if !used[n] {
			idle = append(idle, n.String())
		}
	}
	if len(idle) > 0 {
		slices.Sort(idle)
		b.WriteString("\nLooked up, but never connected to:\n")
		for _, n := range idle {
			b.WriteString("  " + n + "\n")
		}
	}
	return b.String()
}
