package probe

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// destination stands for everything that the policies don't tell apart from it.
type destination struct {
	name  hostname.Name // zero for an address
	addr  netip.Addr
	shown string
	// whole marks the ones that stand for every name or public address.
	whole bool
	// unresolved marks a name that neither policy lets a guest resolve: it can only be said, at any address.
	unresolved bool
}

// family are destinations that "default" treats alike.
type family uint8

const (
	names family = iota
	ipv4
	ipv6
)

func (d destination) family() family {
	switch {
	case !d.name.IsZero() && !d.unresolved:
		return names
	case d.addr.Is4():
		return ipv4
	}
	return ipv6
}

// Addresses that are judged by more than the rules: special ones, and a resolver of others.
var inside = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("9.9.9.9")}

// resolverName is the name of a resolver of others.
const resolverName = "dns.quad9.net"

// publicAddrs returns addresses that stand for what "default" opens or leaves shut: those that the fewest ranges hold.
func publicAddrs(ranges []netip.Prefix) (v4, v6 netip.Addr) {
	holding := func(a netip.Addr) (n int) {
		for _, r := range ranges {
			if r.Contains(a) {
				n++
			}
		}
		return n
	}
	v4, v6 = standIn, netip.MustParseAddr("2606:2800:21f::1")
	for i := range 200 {
		a, b := v4.As4(), v6.As16()
		a[0], a[1] = byte(20+i), byte(250-i)
		b[1] = byte(i) // within 2600::/12
		for _, other := range []netip.Addr{netip.AddrFrom4(a), netip.AddrFrom16(b)} {
			best := &v4
			if other.Is6() {
				best = &v6
			}
			if egress.Classify(other).Public() && holding(other) < holding(*best) {
				*best = other
			}
		}
	}
	return v4, v6
}

// destinations are one for each name that a rule or [hosts] names, and one for each stretch of addresses
// between two borders of ranges. Those that stand for all the others are first.
func destinations(rules []policies.Rule, both ...*policies.Policy) []destination {
	var ranges, away []netip.Prefix
	patterns := []hostname.Pattern{hostname.MustParsePattern(resolverName)}
	for _, r := range rules {
		patterns, ranges = append(patterns, r.Hosts...), append(ranges, r.CIDRs...)
		away = append(away, r.Within...)
	}
	for _, p := range both {
		for _, m := range p.Hosts {
			patterns = append(patterns, hostname.MustParsePattern(m.Name.String()))
		}
		patterns = append(patterns, inspectionNames(p)...)
	}
	v4, v6 := publicAddrs(append(away, ranges...))
	every, _ := ofPattern(hostname.MustParsePattern("*"), v4)
	list := ofRanges(ranges)
	for _, a := range inside {
		list = append(list, ofAddr(a))
	}
	var named []destination
	for _, p := range patterns {
		if d, ok := ofPattern(p, v4); ok && !p.Any() {
			named = append(named, d)
		}
	}
	list = append(append(list, named...), ofNames(append(named, every), rules, ranges, v6)...)
	slices.SortFunc(list, func(a, b destination) int { return cmp.Compare(a.shown, b.shown) })
	list = slices.CompactFunc(list, func(a, b destination) bool { return a.shown == b.shown })
	return slices.Concat([]destination{
		{addr: v4, shown: "public IPv4", whole: true},
		{addr: v6, shown: "public IPv6", whole: true},
		{name: every.name, addr: v4, shown: every.shown, whole: true},
	}, list)
}

// ofNames are names at each stretch of the addresses that rules give to them (within): any range that a rule names
// may end inside of one. Where a range holds every address of the one family, a name is asked about at v6 too.
func ofNames(names []destination, rules []policies.Rule, ranges []netip.Prefix, v6 netip.Addr) (list []destination) {
	for _, d := range names {
		given := slices.Concat(rangesOf(rules, d.name)...)
		if slices.ContainsFunc(slices.Concat(given, ranges), func(r netip.Prefix) bool { return r.Bits() == 0 }) {
			list = append(list, destination{name: d.name, addr: v6, shown: d.shown + " at IPv6"})
		}
		for _, at := range ofRanges(slices.Concat(given, ranges)) {
			if _, ok := narrowest(given, at.addr); ok {
				list = append(list, destination{name: d.name, addr: at.addr, shown: d.shown + " at " + at.shown})
			}
		}
	}
	return list
}

// rangesOf are the ranges that each of the rules for a name gives to it.
func rangesOf(rules []policies.Rule, name hostname.Name) (list [][]netip.Prefix) {
	for _, r := range rules {
		if slices.ContainsFunc(r.Hosts, func(h hostname.Pattern) bool { return h.Match(name) }) {
			list = append(list, r.Within)
		}
	}
	return list
}

// inspectionNames are those that a policy names to have connections opened, or kept closed.
func inspectionNames(p *policies.Policy) []hostname.Pattern {
	list := slices.Clone(p.TLS.Bypass)
	for _, s := range p.Secrets {
		for _, h := range s.Hosts {
			list = append(list, h.Pattern)
		}
	}
	if p.Floor != nil {
		list = append(list, inspectionNames(p.Floor)...)
	}
	return list
}

func ofAddr(addr netip.Addr) destination {
	shown := addr.String()
	if addr.Is6() {
		shown = "[" + shown + "]"
	}
	return destination{addr: addr, shown: shown}
}

// ofPattern takes a name below a wildcard that no rule is likely to name.
func ofPattern(p hostname.Pattern, addr netip.Addr) (destination, bool) {
	text := strings.Replace(p.String(), "*", "msb-any-name", 1)
	if p.Any() {
		text += ".example"
	}
	name, err := hostname.Parse(text)
	return destination{name: name, addr: addr, shown: p.String()}, err == nil
}

// ofRanges gives the first address of each range and the first behind it, so that what a range loses
// at its end or in its middle is asked about too.
func ofRanges(ranges []netip.Prefix) []destination {
	var list []destination
	for _, r := range ranges {
		for _, addr := range []netip.Addr{r.Addr(), lastAddr(r).Next()} {
			if in, ok := narrowest(ranges, addr); ok {
				d := ofAddr(addr)
				if !in.IsSingleIP() {
					d.shown = in.String() + " from " + d.shown
				}
				list = append(list, d)
			}
		}
	}
	return list
}

// narrowest is the longest of ranges around addr.
func narrowest(ranges []netip.Prefix, addr netip.Addr) (best netip.Prefix, ok bool) {
	for _, r := range ranges {
		if r.Contains(addr) && (!ok || r.Bits() > best.Bits()) {
			best, ok = r, true
		}
	}
	return best, ok
}

// lastAddr is the last address of p.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// portCell is a range of ports that no rule tells apart.
type portCell struct{ first, last uint16 }

// knownPorts are those that mean something of their own to the engine or to Ask.
var knownPorts = []uint16{80, 443, 853, 8080}

// portCells cuts 1 to 65535 at the borders of all ranges of ports.
func portCells(rules []policies.Rule) []portCell {
	starts := []int{1}
	cut := func(first, last uint16) { starts = append(starts, int(first), int(last)+1) }
	for _, p := range slices.Concat(knownPorts, reservedPorts) {
		cut(p, p)
	}
	for _, r := range rules {
		for _, p := range r.Ports {
			cut(p.First, p.Last)
		}
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	var cells []portCell
	for i, first := range starts {
		last := 65535
		if i+1 < len(starts) {
			last = starts[i+1] - 1
		}
		if first <= last {
			cells = append(cells, portCell{uint16(first), uint16(last)})
		}
	}
	return cells
}

// request is one to ask about; shown is the glob that path stands for.
type request struct{ method, path, shown string }

// requestsTo are the methods and paths that rules for a name tell apart, each with each, and one of
// either that no rule names.
func requestsTo(d destination, rules []policies.Rule) []request {
	methods, paths := []string{"GET", "POST"}, []string{"/", "/**"}
	for _, r := range rules {
		if len(r.Hosts)+len(r.CIDRs) == 0 || slices.ContainsFunc(r.Hosts, func(h hostname.Pattern) bool { return h.Match(d.name) }) {
			methods, paths = append(methods, r.Methods...), append(paths, r.Paths...)
		}
	}
	methods, paths = sorted(methods), sorted(paths)
	list := make([]request, 0, len(methods)*len(paths))
	for _, m := range methods {
		for _, p := range paths {
			list = append(list, request{m, strings.NewReplacer("**", "msb-any/name", "*", "msb-any").Replace(p), p})
		}
	}
	return list
}

func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
