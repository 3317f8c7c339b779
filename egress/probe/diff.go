package probe

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/policies"
)

// Change is one target that two policies judge differently.
type Change struct {
	// Target is "HOST:PORT" or "HOST:FIRST-LAST", with "*." in front where a rule names all below HOST.
	Target string `json:"target"`
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

// Diff judges by both policies what either of them tells apart, and returns what is judged differently:
// each name and range of addresses that a rule names, on each range of ports between two that rules
// name, with each method and path where one of the two looks into requests. What changes for every name
// or public address is said once, of "*" and of an address that no rule needs to name.
func Diff(a, b *policies.Policy) ([]Change, error) {
	before, err := egress.New(a)
	if err != nil {
		return nil, fmt.Errorf("first policy: %w", err)
	}
	after, err := egress.New(b)
	if err != nil {
		return nil, fmt.Errorf("second policy: %w", err)
	}
	d := differ{policies: [2]*policies.Policy{a, b}, engines: [2]*egress.Engine{before, after}}
	d.rules = slices.Concat(a.Egress.Allow, a.Egress.Deny, b.Egress.Allow, b.Egress.Deny)
	ports := portCells(d.rules)
	d.everywhere = map[common]bool{}
	for _, dest := range destinations(d.rules, a, b) {
		d.requests = requestsTo(dest, d.rules)
		for _, proto := range []egress.Proto{egress.TCP, egress.UDP} {
			d.transport(dest, proto, ports)
		}
		d.compare(dest, egress.ICMP, portCell{})
	}
	d.targets()
	return d.changes, nil
}

// differ compares two policies. Index 0 is before, 1 is after.
type differ struct {
	policies [2]*policies.Policy
	engines  [2]*egress.Engine
	rules    []policies.Rule // of both
	requests []request       // worth asking about at the destination in hand
	changes  []Change
	// everywhere is what changes for a whole family of destinations: no news at one of them.
	everywhere map[common]bool
}

// common is a change without its destination and rule.
type common struct {
	family        family
	proto         egress.Proto
	cell          portCell
	method, path  string
	before, after string
}

// transport compares every range of ports, and joins ranges that change alike.
func (d *differ) transport(dest destination, proto egress.Proto, cells []portCell) {
	var first portCell
	var run []Change
	for _, cell := range cells {
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

// compare asks both policies about one destination: the connection, then the requests in it where one
// of the two would look into them.
func (d *differ) compare(dest destination, proto egress.Proto, cell portCell) {
	t := Target{Name: dest.name, Addr: dest.addr, Port: cell.first, Proto: proto}
	shown := dest.shownAt(proto, cell)
	x, y := d.ask(t)
	note := func(method, path string, x, y Answer) {
		id := common{dest.family(), proto, cell, method, path, x.Action, y.Action}
		if dest.whole {
			d.everywhere[id] = true
		}
		if dest.whole || !d.everywhere[id] {
			d.note(shown, method, path, x, y)
		}
	}
	note("", "", x, y)
	inspect := egress.Inspect.String()
	if proto != egress.TCP || x.Action != inspect && y.Action != inspect {
		return
	}
	for _, r := range d.requests {
		t.Method, t.Path = r.method, r.path
		// What opens or closes as a whole has been said.
		if p, q := d.ask(t); p.Denied() != q.Denied() && !x.Denied() && !y.Denied() {
			note(r.method, r.shown, p, q)
		}
	}
}

func (d *differ) ask(t Target) (before, after Answer) {
	return Ask(d.engines[0], d.policies[0], t), Ask(d.engines[1], d.policies[1], t)
}

func (d *differ) note(shown, method, path string, x, y Answer) {
	if x.Action == y.Action {
		return
	}
	c := Change{Target: shown, Method: method, Path: path, Kind: "changes", Before: x.Action, After: y.Action, Rule: y.Rule}
	switch {
	case x.Denied():
		c.Kind = "opens"
	case y.Denied():
		c.Kind, c.Rule = "closes", x.Rule
	}
	d.changes = append(d.changes, c)
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
	if proto == egress.ICMP {
		return d.shown + "/icmp"
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
