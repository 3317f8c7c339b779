package policies

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/msb-project/msb/hostname"
)

// rule reads one rule of a list, "allow" or "deny". It returns several where
// the default of protocol depends on the ports.
func (c *converter) rule(list string, i int, f fileRule) []Rule {
	key := fmt.Sprintf("egress.%s[%d]", list, i)
	before := len(c.list)
	r := Rule{
		Name:    fmt.Sprintf("%s[%d]", list, i),
		Hosts:   c.patterns(key+".hosts", f.Hosts),
		CIDRs:   c.cidrs(key+".cidrs", f.CIDRs),
		Within:  c.cidrs(key+".within", f.Within),
		Ports:   c.ports(key+".ports", f.Ports),
		Methods: f.Methods,
		Paths:   f.Paths,
		Private: f.Private,
		Pos:     c.places.of(key),
	}
	if f.Name != nil {
		r.Name = *f.Name
	}
	if f.Why != nil {
		r.Why = *f.Why
	}
	c.checkLists(key, f)
	if f.Protocol != nil {
		v, ok := protocols.value(*f.Protocol)
		if !ok {
			c.enum(key+".protocol", f.Protocol, protocols) // for its message
			return nil
		}
		r.Protocol = Protocol(v)
	}
	rules := []Rule{r}
	if list == "allow" {
		rules = withDefaults(r, f.Protocol != nil)
	}
	if len(c.list) > before {
		return rules // one fault is enough; those of the parts would repeat it
	}
	for _, r := range rules {
		c.checkRule(key, list == "allow", r)
	}
	return rules
}

// checkLists refuses lists that are there but empty: "hosts = []" reads as
// "nothing", and would mean "everything" in a deny rule.
func (c *converter) checkLists(key string, f fileRule) {
	for _, l := range []struct {
		name  string
		given bool
		n     int
	}{
		{"hosts", f.Hosts != nil, len(f.Hosts)},
		{"cidrs", f.CIDRs != nil, len(f.CIDRs)},
		{"within", f.Within != nil, len(f.Within)},
		{"ports", f.Ports != nil, len(f.Ports)},
		{"methods", f.Methods != nil, len(f.Methods)},
		{"paths", f.Paths != nil, len(f.Paths)},
	} {
		if l.given && l.n == 0 {
			c.add(key+"."+l.name, "it is empty, so the rule can never match", "fill it, or leave the key out")
		}
	}
}

func (c *converter) patterns(key string, list []string) []hostname.Pattern {
	var out []hostname.Pattern
	for i, s := range list {
		element := fmt.Sprintf("%s[%d]", key, i)
		p, err := hostname.ParsePattern(s)
		if err != nil {
			c.hostFault(element, s, err)
			continue
		}
		out = append(out, p)
	}
	return out
}

// hostFault explains a host that isn't one.
func (c *converter) hostFault(key, s string, err error) {
	if !errors.Is(err, hostname.ErrAddress) {
		remedy := ""
		if _, perr := netip.ParsePrefix(s); perr == nil {
			remedy = "put ranges in cidrs"
		} else if strings.HasPrefix(key, "secrets.") {
			remedy = "write the host's name alone, as \"api.github.com\", or with its port where that isn't 443, as \"api.github.com:8443\""
		} else if h, port, ok := cutPort(s); ok {
			remedy = fmt.Sprintf("write hosts = [%q] and ports = [%s]", h, port)
		} else if strings.ContainsAny(s, ":/") {
			remedy = "write the host's name alone, as \"api.github.com\"; paths and ports have keys of their own"
		}
		c.add(key, err.Error(), remedy)
		return
	}
	if !strings.HasPrefix(key, "egress.") {
		c.add(key, err.Error(), "only names can stand here")
		return
	}
	remedy := "name addresses in cidrs, as a prefix"
	if a, perr := netip.ParseAddr(s); perr == nil {
		remedy = fmt.Sprintf("write cidrs = [%q] in place of it", netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()).String())
	}
	c.add(key, err.Error(), remedy)
}

func (c *converter) cidrs(key string, list []string) []netip.Prefix {
	var out []netip.Prefix
	for i, s := range list {
		p, err := parseCIDR(s)
		if err != nil {
			c.addErr(fmt.Sprintf("%s[%d]", key, i), err)
			continue
		}
		out = append(out, p)
	}
	return out
}

// parseCIDR reads a prefix whose host bits are clear.
func parseCIDR(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.Prefix{}, fmt.Errorf("%q has no length; write %q", s, netip.PrefixFrom(a.WithZone(""), a.BitLen()))
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		if _, nerr := hostname.ParsePattern(s); nerr == nil {
			return netip.Prefix{}, fmt.Errorf("%q is a name; put names in hosts", s)
		}
		return netip.Prefix{}, fmt.Errorf("%q is not an address range; write one such as \"192.0.2.0/24\"", s)
	case p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q is an IPv4 range in IPv6 form; write it as IPv4, which covers both", s)
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("%q has bits set beyond its length; write %q for the range, or %q for the address", s, p.Masked(), netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
	}
	return p, nil
}

func (c *converter) ports(key string, list []any) []PortRange {
	var out []PortRange
	for i, v := range list {
		r, err := parsePorts(v)
		if err != nil {
			c.addErr(fmt.Sprintf("%s[%d]", key, i), err)
			continue
		}
		out = append(out, r)
	}
	return out
}

// withDefaults fills in protocol and ports of an allow rule, and splits a rule
// whose ports call for different protocols.
func withDefaults(r Rule, hasProtocol bool) []Rule {
	if !hasProtocol {
		switch {
		case len(r.Methods)+len(r.Paths) > 0:
			r.Protocol = HTTPS
			if slices.Equal(r.Ports, []PortRange{{portHTTP, portHTTP}}) {
				r.Protocol = HTTP
			}
		case len(r.Hosts) == 0:
			r.Protocol = TCP
		case len(r.Ports) == 0:
			r.Protocol = HTTPS
		default:
			return splitByPort(r)
		}
	}
	if len(r.Ports) == 0 {
		switch r.Protocol {
		case HTTPS, ProtocolTLS:
			r.Ports = []PortRange{{portHTTPS, portHTTPS}}
		case HTTP:
			r.Ports = []PortRange{{portHTTP, portHTTP}}
		case Any, TCP, UDP, ICMP:
		}
	}
	return []Rule{r}
}

// splitByPort gives each port of r the protocol that lives there.
func splitByPort(r Rule) []Rule {
	var parts []Rule
	rest := r.Ports
	for _, known := range []struct {
		port     uint16
		protocol Protocol
	}{{portHTTPS, HTTPS}, {portHTTP, HTTP}} {
		var hit bool
		if rest, hit = withoutPort(rest, known.port); hit {
			part := r
			part.Protocol, part.Ports = known.protocol, []PortRange{{known.port, known.port}}
			parts = append(parts, part)
		}
	}
	if len(rest) > 0 {
		part := r
		part.Protocol, part.Ports = TCP, rest
		parts = append(parts, part)
	}
	if len(parts) > 1 {
		for i := range parts {
			parts[i].Name += " (" + parts[i].Protocol.String() + ")"
		}
	}
	return parts
}

// withoutPort cuts one port out of ranges and says whether it was there.
func withoutPort(ranges []PortRange, port uint16) ([]PortRange, bool) {
	var out []PortRange
	hit := false
	for _, r := range ranges {
		if !r.Contains(port) {
			out = append(out, r)
			continue
		}
		hit = true
		if r.First < port {
			out = append(out, PortRange{r.First, port - 1})
		}
		if port < r.Last {
			out = append(out, PortRange{port + 1, r.Last})
		}
	}
	return out, hit
}

// sortByPlace puts what came out of a TOML table, which has no order in Go,
// into the order of the file.
func sortByPlace[T any](list []T, pos func(T) Position) {
	slices.SortStableFunc(list, func(a, b T) int {
		p, q := pos(a), pos(b)
		return cmp.Or(cmp.Compare(p.Line, q.Line), cmp.Compare(p.Col, q.Col))
	})
}
