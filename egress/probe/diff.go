package probe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

// Comparison is what differs between two policies.
type Comparison struct {
	// Flows are those that were found to be judged differently.
	Flows []Change `json:"flows"`
	// Keys are all keys that differ. If there is none, nothing is judged differently.
	Keys []policies.Difference `json:"keys"`
}

// Same reports whether the policies are the same.
func (c *Comparison) Same() bool { return len(c.Flows)+len(c.Keys) == 0 }

// Change is one target that two policies judge differently.
type Change struct {
	// Target is "HOST:PORT" or "HOST:FIRST-LAST", with "*." in front where a rule names all below HOST. "HOST/dns"
	// is a question to the resolver. "*" is every name, "public IPv4" and "public IPv6" every public address. "NAME at ADDR" is a name where it has
	// an address of that range.
	Target string `json:"target"`
	// Said is what the client says first, where this differs from what is usual on the port.
	Said   string `json:"said,omitempty"`
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	// Kind is "opens", "closes" or "changes" (inspected before, not after, or the other way round, or a
	// name of [hosts] that leads elsewhere: Before and After are the targets then).
	Kind   string `json:"kind"`
	Before string `json:"before"`
	After  string `json:"after"`
	// Rule is the rule that decides after, or, for what closes, the one that decided before.
	Rule string `json:"rule,omitempty"`
}

// Diff compares a and b. It judges by both what either of them tells apart: each name and range of addresses that a
// rule names, on each range of ports between two that rules name, with each way in which a client may begin, and with
// each method and path where one of the two looks into requests. What changes for every name or public address is said
// once. A name is taken to have an address that no
// rule is about. Sampling finds no more than it looks for, so that each key that differs is listed as well.
func Diff(a, b *policies.Policy) (*Comparison, error) {
	open, err := egress.New(&policies.Policy{Egress: policies.EgressRules{Default: policies.DefaultPublic}})
	if err != nil {
		return nil, err
	}
	d := differ{open: open}
	for side, p := range []*policies.Policy{a, b} {
		r, err := session.NewRules(p, &egress.Classifier{})
		if err != nil {
			return nil, fmt.Errorf("%s policy: %w", []string{"first", "second"}[side], err)
		}
		d.policies[side], d.judges[side] = p, judge{rules: r}
	}
	d.rules = slices.Concat(rulesOf(a), rulesOf(b))
	ports := portCells(d.rules)
	d.everywhere = map[common]bool{}
	for _, dest := range destinations(d.rules, a, b) {
		had := len(d.changes)
		d.requests = requestsTo(dest, d.rules)
		dest.unresolved = !dest.whole && !dest.name.IsZero() && d.judges[0].unresolved(dest.name) && d.judges[1].unresolved(dest.name)
		for _, proto := range []egress.Proto{egress.TCP, egress.UDP} {
			d.transport(dest, proto, ports)
		}
		d.compare(dest, egress.ICMP, portCell{})
		if len(d.changes) == had {
			d.resolve(dest)
		}
	}
	d.targets()
	return &Comparison{Flows: d.changes, Keys: append(policies.Compare(a, b), moved(a, b)...)}, nil
}

// moved are the commands of secrets that are the same but for the directory, whose files they may run.
func moved(a, b *policies.Policy) (found []policies.Difference) {
	for _, x := range a.Secrets {
		i := slices.IndexFunc(b.Secrets, func(y policies.Secret) bool { return x.Name == y.Name && x.From.String() == y.From.String() })
		if i < 0 {
			continue
		}
		before, after := grants.DirOf(a, x.From), grants.DirOf(b, b.Secrets[i].From)
		if before != after {
			found = append(found, policies.Difference{Key: "secrets." + x.Name + ".from", Before: x.From.String() + ranIn(before), After: x.From.String() + ranIn(after)})
		}
	}
	return found
}

func ranIn(dir string) string {
	if dir == "" {
		return ""
	}
	return " in " + policies.QuoteArgs([]string{dir})
}

// rulesOf are the rules of p and of its floors.
func rulesOf(p *policies.Policy) []policies.Rule {
	rules := slices.Concat(p.Egress.Allow, p.Egress.Deny)
	if p.Floor != nil {
		rules = append(rules, rulesOf(p.Floor)...)
	}
	return rules
}

// differ compares two policies. Index 0 is before, 1 is after.
type differ struct {
	policies [2]*policies.Policy
	judges   [2]judge
	rules    []policies.Rule // of both
	requests []request       // worth asking about at the destination in hand
	changes  []Change
	// everywhere is what changes for a whole family of destinations: it is not reported again for one of them.
	everywhere map[common]bool
	open       *egress.Engine // lets out what is public
}

// common is a change without its destination and rule.
type common struct {
	family        family
	proto         egress.Proto
	cell          portCell
	said          string
	method, path  string
	before, after string
}

// transport compares every range of ports, and joins ranges that change alike.
func (d *differ) transport(dest destination, proto egress.Proto, cells []portCell) {
	var first portCell
	var run []Change
	for _, cell := range cells {
		if reserved(proto, cell) {
			continue
		}
		had := len(d.changes)
		d.compare(dest, proto, cell)
		now := slices.Clone(d.changes[had:])
		d.changes = d.changes[:had]
		if len(run) > 0 && slices.EqualFunc(run, now, alike) {
			first.last = cell.last
			continue
		}
		d.add(dest, proto, first, run)
		first, run = cell, now
	}
	d.add(dest, proto, first, run)
}

func (d *differ) add(dest destination, proto egress.Proto, cell portCell, run []Change) {
	for _, c := range run {
		c.Target = dest.shownAt(proto, cell)
		d.changes = append(d.changes, c)
	}
}

// alike reports whether two changes differ in their target only.
func alike(a, b Change) bool {
	b.Target = a.Target
	return a == b
}

// compare asks both policies about one destination: the connection, by each way in which a client may begin, then the
// requests in it where one of the two would look into them.
func (d *differ) compare(dest destination, proto egress.Proto, cell portCell) {
	if proto != egress.TCP {
		x, y := d.ask(dest, proto, cell.first, talk{})
		d.note(dest, proto, cell, Change{}, x, y)
		return
	}
	var groups []transition
	talks := talksTo(dest, cell.first)
	for i, t := range talks {
		x, y := d.ask(dest, proto, cell.first, t)
		if i == 0 {
			d.note(dest, proto, cell, Change{}, x, y)
			if x.final && y.final {
				return
			}
			d.compareRequests(dest, cell, t, x, y)
			groups = append(groups, transition{before: x, after: y})
			continue
		}
		groups = gather(groups, transition{t.said, x, y})
	}
	for _, g := range groups[1:] {
		if strings.Count(g.said, ",") == len(talks)-2 {
			g.said = "anything but " + talks[0].said
		}
		d.note(dest, proto, cell, Change{Said: g.said}, g.before, g.after)
	}
}

// transition is how the judgement of what a client says first changes.
type transition struct {
	said          string
	before, after outcome
}

// gather adds t to the one of groups that changes alike. A change that is the first one's again is not added.
func gather(groups []transition, t transition) []transition {
	for i, g := range groups {
		if g.before.action != t.before.action || g.after.action != t.after.action {
			continue
		}
		if i > 0 {
			groups[i].said += ", " + t.said
		}
		return groups
	}
	return append(groups, t)
}

func (d *differ) compareRequests(dest destination, cell portCell, t talk, x, y outcome) {
	if x.action != inspected && y.action != inspected || x.action == denied || y.action == denied {
		return // what opens or closes as a whole is reported already
	}
	for _, r := range d.requests {
		p, q := x.request(t, r), y.request(t, r)
		if p.denied() != q.denied() {
			d.note(dest, egress.TCP, cell, Change{Method: r.method, Path: r.shown}, p, q)
		}
	}
}

func (d *differ) ask(dest destination, proto egress.Proto, port uint16, t talk) (before, after outcome) {
	return d.judges[0].ask(dest, proto, port, t), d.judges[1].ask(dest, proto, port, t)
}

// resolve compares whether the name of dest may be asked for.
func (d *differ) resolve(dest destination) {
	if !dest.name.IsZero() {
		d.note(dest, 0, portCell{}, Change{}, d.judges[0].resolve(dest.name), d.judges[1].resolve(dest.name))
	}
}

// note adds c, a change from x to y.
func (d *differ) note(dest destination, proto egress.Proto, cell portCell, c Change, x, y outcome) {
	if x.action == y.action {
		return
	}
	id := common{dest.family(), proto, cell, c.Said, c.Method, c.Path, x.action, y.action}
	if dest.whole {
		d.everywhere[id] = true
	} else if d.everywhere[id] && !d.apart(dest) {
		return
	}
	c.Target, c.Kind, c.Before, c.After, c.Rule = dest.shownAt(proto, cell), "changes", x.action, y.action, y.rule
	switch {
	case x.denied():
		c.Kind = "opens"
	case y.denied():
		c.Kind, c.Rule = "closes", x.rule
	}
	d.changes = append(d.changes, c)
}

// apart reports whether "*" and public addresses don't speak for dest.
func (d *differ) apart(dest destination) bool {
	if dest.name.IsZero() || dest.unresolved || !egress.Classify(dest.addr).Public() {
		return !egress.Classify(dest.addr).Public()
	}
	for _, p := range d.policies {
		if slices.ContainsFunc(p.Hosts, func(m policies.HostMapping) bool { return m.Name == dest.name }) {
			return true
		}
	}
	return !d.open.DecideName(dest.name).Allowed()
}

// targets tells of names of [hosts] that lead elsewhere.
func (d *differ) targets() {
	for _, m := range d.policies[0].Hosts {
		for _, n := range d.policies[1].Hosts {
			if m.Name == n.Name && m.Target != n.Target {
				d.changes = append(d.changes, Change{
					Target: m.Name.String(), Kind: "changes", Before: m.Target.String(), After: n.Target.String(), Rule: "hosts." + m.Name.String(),
				})
			}
		}
	}
}

// shownAt writes the destination with its ports.
func (d destination) shownAt(proto egress.Proto, cell portCell) string {
	switch proto {
	case egress.TCP, egress.UDP:
	case egress.ICMP:
		return d.shown + "/icmp"
	default:
		return d.shown + "/dns"
	}
	s := d.shown + ":" + strconv.Itoa(int(cell.first))
	if cell.last != cell.first {
		s += "-" + strconv.Itoa(int(cell.last))
	}
	if proto == egress.UDP {
		s += "/udp"
	}
	return s
}
