package policies

import (
	"fmt"
	"net/netip"
	"slices"
)

// Ingress says who may connect to the published ports of a sandbox, beside the machine that it runs on.
type Ingress struct {
	Allow []IngressRule
}

// IngressRule lets the clients of some addresses connect.
type IngressRule struct {
	// Name stands in verdicts; "ingress.allow[0]" where the file has none.
	Name string
	// CIDRs are the clients' addresses as this machine sees them.
	CIDRs []netip.Prefix
	Why   string
	Pos   Position
}

// Admits reports whether a client of another machine may connect, and by which rule of p: p and each floor below it must
// have one.
func (p *Policy) Admits(client netip.Addr) (rule string, ok bool) {
	client = client.Unmap().WithZone("")
	i := slices.IndexFunc(p.Ingress.Allow, func(r IngressRule) bool {
		return slices.ContainsFunc(r.CIDRs, func(c netip.Prefix) bool { return c.Contains(client) })
	})
	if i < 0 {
		return "", false
	}
	if p.Floor != nil {
		if _, ok := p.Floor.Admits(client); !ok {
			return "", false
		}
	}
	return p.Ingress.Allow[i].Name, true
}

func (c *converter) ingress(in *Ingress, f *fileIngress) {
	for i, r := range f.Allow {
		key := fmt.Sprintf("ingress.allow[%d]", i)
		rule := IngressRule{Name: key, CIDRs: c.cidrs(key+".cidrs", r.CIDRs), Pos: c.places.of(key)}
		if r.Name != nil {
			rule.Name = *r.Name
		}
		if r.Why != nil {
			rule.Why = *r.Why
		}
		if len(r.CIDRs) == 0 {
			c.lacks(key, "cidrs", "it has no cidrs", "name the addresses that may connect, as cidrs = [\"192.168.1.0/24\"]")
		}
		in.Allow = append(in.Allow, rule)
	}
}

// checkIngress is for rules that were made in code.
func (f *faults) checkIngress(in *Ingress) {
	for i, r := range in.Allow {
		if len(r.CIDRs) == 0 || slices.ContainsFunc(r.CIDRs, func(c netip.Prefix) bool { return !c.IsValid() || c != c.Masked() }) {
			f.addAt(r.Pos, fmt.Sprintf("ingress.allow[%d].cidrs", i), "it is empty, or one is no range", "name the addresses that may connect, as 192.168.1.0/24")
		}
	}
}

func (w *writer) ingress(in *Ingress) {
	for _, r := range in.Allow {
		w.line("\n[[ingress.allow]]")
		w.key("name", r.Name)
		list(w, "cidrs", r.CIDRs)
		optional(w, "why", r.Why)
	}
}
