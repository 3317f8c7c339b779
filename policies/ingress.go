package policies

import (
	"fmt"
	"net/netip"
	"slices"
)

// Ingress says who may connect to the ports of a sandbox, beside the machine that it runs on.
type Ingress struct {
	Allow []IngressRule
}

// IngressRule lets clients connect: those of some addresses to published ports, or some sandboxes to Ports.
type IngressRule struct {
	// Name stands in verdicts; "ingress.allow[0]" where the file has none.
	Name string
	// CIDRs are the clients' addresses as this machine sees them.
	CIDRs []netip.Prefix
	// Sandboxes are names of others of this user's, whose [hosts] leads here.
	Sandboxes []string
	// Ports are the guest's TCP ports, for Sandboxes.
	Ports []PortRange
	Why   string
	Pos   Position
}

// Admits reports whether a client of another machine may connect, and by which rule of p: p and each floor below it must
// have one.
func (p *Policy) Admits(client netip.Addr) (rule string, ok bool) {
	client = client.Unmap().WithZone("")
	return p.admits(func(r *IngressRule) bool {
		return slices.ContainsFunc(r.CIDRs, func(c netip.Prefix) bool { return c.Contains(client) })
	})
}

// AdmitsToPod is Admits for a port of a pod, which every client may connect to that no policy narrows: p and each floor
// below it must have a rule for the client if they have any with CIDRs. The rule is "" if none has.
func (p *Policy) AdmitsToPod(client netip.Addr) (rule string, ok bool) {
	client = client.Unmap().WithZone("")
	for ; p != nil; p = p.Floor {
		if !p.Ingress.AdmitsAddresses() {
			continue
		}
		i := slices.IndexFunc(p.Ingress.Allow, func(r IngressRule) bool {
			return slices.ContainsFunc(r.CIDRs, func(c netip.Prefix) bool { return c.Contains(client) })
		})
		if i < 0 {
			return "", false
		}
		if rule == "" {
			rule = p.Ingress.Allow[i].Name
		}
	}
	return rule, true
}

// AdmitsSandbox is Admits for another sandbox that connects to a TCP port of the guest.
func (p *Policy) AdmitsSandbox(name string, port uint16) (rule string, ok bool) {
	return p.admits(func(r *IngressRule) bool {
		return slices.Contains(r.Sandboxes, name) && slices.ContainsFunc(r.Ports, func(o PortRange) bool { return o.Contains(port) })
	})
}

func (p *Policy) admits(match func(*IngressRule) bool) (rule string, ok bool) {
	i := slices.IndexFunc(p.Ingress.Allow, func(r IngressRule) bool { return match(&r) })
	if i < 0 {
		return "", false
	}
	if p.Floor != nil {
		if _, ok := p.Floor.admits(match); !ok {
			return "", false
		}
	}
	return p.Ingress.Allow[i].Name, true
}

// AdmitsAddresses reports whether a rule is about clients of other machines.
func (i *Ingress) AdmitsAddresses() bool {
	return slices.ContainsFunc(i.Allow, func(r IngressRule) bool { return len(r.CIDRs) > 0 })
}

func (c *converter) ingress(in *Ingress, f *fileIngress) {
	for i, r := range f.Allow {
		key := fmt.Sprintf("ingress.allow[%d]", i)
		rule := IngressRule{
			Name: key, CIDRs: c.cidrs(key+".cidrs", r.CIDRs), Sandboxes: r.Sandboxes, Ports: c.ports(key+".ports", r.Ports),
			Pos: c.places.of(key),
		}
		if r.Name != nil {
			rule.Name = *r.Name
		}
		if r.Why != nil {
			rule.Why = *r.Why
		}
		if len(rule.CIDRs) == len(r.CIDRs) && len(rule.Ports) == len(r.Ports) { // else one was faulty, and is reported
			c.checkIngressRule(key, &rule)
		}
		in.Allow = append(in.Allow, rule)
	}
}

// checkIngressRule says what a rule lacks, or has too much.
func (f *faults) checkIngressRule(key string, r *IngressRule) {
	badRange := func(c netip.Prefix) bool { return !c.IsValid() || c != c.Masked() }
	badName := func(s string) bool { return !sandboxName.MatchString(s) }
	switch {
	case slices.ContainsFunc(r.CIDRs, badRange):
		f.addAt(r.Pos, key+".cidrs", "one is no range", "name the addresses that may connect, as 192.168.1.0/24")
	case len(r.CIDRs) > 0 && len(r.Sandboxes)+len(r.Ports) > 0:
		f.addAt(r.Pos, key, "it has cidrs, and sandboxes or ports", "write a rule with cidrs for other machines (msb run -p says which ports), and another with sandboxes and ports")
	case len(r.CIDRs) == 0 && len(r.Sandboxes) == 0:
		f.lacks(key, "cidrs sandboxes", "it names nobody", "name the addresses that may connect, as cidrs = [\"192.168.1.0/24\"], or sandboxes with ports")
	case slices.ContainsFunc(r.Sandboxes, badName):
		f.addAt(r.Pos, key+".sandboxes", "one is no name of a sandbox", "use 1 to 63 lower-case letters, digits and hyphens, such as web-1")
	case len(r.Sandboxes) > 0 && len(r.Ports) == 0:
		f.addAt(r.Pos, key, "sandboxes need ports", "name the guest's ports that they may connect to, as ports = [5432]")
	}
}

func (w *writer) ingress(in *Ingress) {
	for _, r := range in.Allow {
		w.line("\n[[ingress.allow]]")
		w.key("name", r.Name)
		list(w, "cidrs", r.CIDRs)
		list(w, "sandboxes", r.Sandboxes)
		list(w, "ports", r.Ports)
		optional(w, "why", r.Why)
	}
}
