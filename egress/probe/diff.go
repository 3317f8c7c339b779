package probe

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// Change is one target that two policies judge differently.
type Change struct {
	// Target is "HOST:PORT", with "*." in front where a rule names all below HOST.
	Target string `json:"target"`
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	// Kind is "opens", "closes" or "changes" (inspected before, not after, or the other way round).
	Kind   string `json:"kind"`
	Before string `json:"before"`
	After  string `json:"after"`
	// Rule is the rule that decides after, or, for what closes, the one that decided before.
	Rule string `json:"rule,omitempty"`
}

// Diff judges by both policies everything that either of them names, and a few public and private
// addresses that neither needs to name, and returns what is judged differently.
func Diff(a, b *policies.Policy) ([]Change, error) {
	before, err := egress.New(a)
	if err != nil {
		return nil, fmt.Errorf("first policy: %w", err)
	}
	after, err := egress.New(b)
	if err != nil {
		return nil, fmt.Errorf("second policy: %w", err)
	}
	var changes []Change
	for _, s := range samples(a, b) {
		x, y := Ask(before, a, s.target), Ask(after, b, s.target)
		if x.Action == y.Action {
			continue
		}
		c := Change{
			Target: s.shown, Method: s.target.Method, Path: s.target.Path,
			Kind: "changes", Before: x.Action, After: y.Action, Rule: y.Rule,
		}
		switch {
		case x.Denied():
			c.Kind = "opens"
		case y.Denied():
			c.Kind, c.Rule = "closes", x.Rule
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// sample is a target that stands for everything that one line of a policy names.
type sample struct {
	target Target
	shown  string
}

// Targets that no rule needs to name: what "default" opens or leaves shut.
var always = []string{"93.184.215.14:443", "93.184.215.14:80", "93.184.215.14:443/udp", "[2606:2800:21f::1]:443", "10.0.0.1:443", "169.254.169.254:80", "127.0.0.1:80"}

func samples(all ...*policies.Policy) []sample {
	list := make([]sample, 0, len(always))
	for _, s := range always {
		t, err := Parse(s)
		if err == nil {
			list = append(list, sample{t, s})
		}
	}
	for _, p := range all {
		for _, r := range slices.Concat(p.Egress.Allow, p.Egress.Deny) {
			list = append(list, ofRule(r)...)
		}
		for _, m := range p.Hosts {
			list = append(list, ofName(m.Name, m.Name.String(), policies.Rule{Ports: []policies.PortRange{{First: 443, Last: 443}, {First: 80, Last: 80}}})...)
		}
	}
	key := func(s sample) string { return s.shown + " " + s.target.Method + " " + s.target.Path }
	slices.SortFunc(list, func(a, b sample) int { return cmp.Compare(key(a), key(b)) })
	return slices.CompactFunc(list, func(a, b sample) bool { return key(a) == key(b) })
}

func ofRule(r policies.Rule) []sample {
	var list []sample
	for _, h := range r.Hosts {
		name, shown := h.Base(), h.String()
		if h.Wildcard() {
			below, err := hostname.Parse("any." + name.String())
			if err != nil {
				continue
			}
			name = below
		}
		list = append(list, ofName(name, shown, r)...)
	}
	for _, c := range r.CIDRs {
		for _, t := range ofPorts(Target{Addr: firstHost(c)}, r) {
			s := sample{target: t, shown: t.String()}
			if !c.IsSingleIP() {
				s.shown += " in " + c.String()
			}
			list = append(list, s)
		}
	}
	return list
}

func ofName(name hostname.Name, shown string, r policies.Rule) []sample {
	targets := ofPorts(Target{Name: name, Addr: standIn}, r)
	list := make([]sample, 0, len(targets)*(1+len(r.Methods)+len(r.Paths)))
	for _, t := range targets {
		s := sample{target: t, shown: shown + t.String()[len(name.String()):]}
		list = append(list, s)
		for _, m := range r.Methods {
			s.target.Method, s.target.Path = m, "/"
			list = append(list, s)
		}
		for _, p := range r.Paths {
			s.target.Method, s.target.Path = "GET", p
			list = append(list, s)
		}
	}
	return list
}

// ofPorts gives the first and the last port of each range, over the transports the rule speaks of.
func ofPorts(t Target, r policies.Rule) []Target {
	var list []Target
	add := func(proto egress.Proto) {
		t.Proto = proto
		for _, ports := range r.Ports {
			t.Port = ports.First
			list = append(list, t)
			if ports.Last != ports.First {
				t.Port = ports.Last
				list = append(list, t)
			}
		}
	}
	switch r.Protocol.Transport() {
	case policies.UDP:
		add(egress.UDP)
	case policies.ICMP:
		t.Proto = egress.ICMP
		list = append(list, t)
	case policies.Any:
		add(egress.TCP)
		add(egress.UDP)
	case policies.TCP, policies.HTTPS, policies.HTTP, policies.ProtocolTLS:
		add(egress.TCP)
	}
	return list
}

// firstHost is the first usable address of a prefix.
func firstHost(p netip.Prefix) netip.Addr {
	if p.IsSingleIP() {
		return p.Addr()
	}
	return p.Masked().Addr().Next()
}
