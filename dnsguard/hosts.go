package dnsguard

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// Addresses for [hosts]: the benchmarking range (RFC 2544), which no network
// routes, and a range of our own below fd00::/8 (RFC 4193). The first 256 are
// left to the gateway.
var (
	mappedV4 = netip.MustParsePrefix("198.18.0.0/15")
	mappedV6 = netip.MustParsePrefix("fd6d:7362:686f:7374::/64")
)

const (
	firstMapped = 256
	maxMapped   = 1<<17 - firstMapped - 1 // without 198.19.255.255
)

// hostTable gives each name of [hosts] one address of each family, which it
// keeps as long as the guard lives: guests remember addresses over a reload.
type hostTable struct {
	// order holds every name that ever had an address, by its place; names
	// that are no longer mapped keep theirs, so that nothing else gets it.
	order  []hostname.Name
	places map[hostname.Name]int
	// current are the mappings in force, by name.
	current map[hostname.Name]policies.HostMapping
}

// with returns a table for hosts in which every name of t keeps its address.
// New names get theirs in alphabetical order.
func (t *hostTable) with(hosts []policies.HostMapping) (*hostTable, error) {
	next := &hostTable{
		places:  make(map[hostname.Name]int),
		current: make(map[hostname.Name]policies.HostMapping, len(hosts)),
	}
	if t != nil {
		next.order = slices.Clone(t.order)
	}
	for place, name := range next.order {
		next.places[name] = place
	}
	var added []hostname.Name
	for _, mapping := range hosts {
		next.current[mapping.Name] = mapping
		if _, known := next.places[mapping.Name]; !known && !slices.Contains(added, mapping.Name) {
			added = append(added, mapping.Name)
		}
	}
	slices.SortFunc(added, func(a, b hostname.Name) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	if len(next.order)+len(added) > maxMapped {
		return nil, fmt.Errorf("more than %d names in [hosts]; a wildcard rule or a resolver of your own fits better", maxMapped)
	}
	for _, name := range added {
		next.places[name] = len(next.order)
		next.order = append(next.order, name)
	}
	return next, nil
}

// addrs returns the addresses of name, and false if it isn't mapped.
func (t *hostTable) addrs(name hostname.Name) (v4, v6 netip.Addr, ok bool) {
	if _, ok := t.current[name]; !ok {
		return netip.Addr{}, netip.Addr{}, false
	}
	v4, v6 = mappedAddrs(t.places[name])
	return v4, v6, true
}

func mappedAddrs(place int) (v4, v6 netip.Addr) {
	n := uint32(firstMapped + place)
	four, six := mappedV4.Addr().As4(), mappedV6.Addr().As16()
	for i := range 4 {
		part := byte(n >> (8 * (3 - i)))
		four[i] |= part
		six[12+i] = part
	}
	return netip.AddrFrom4(four), netip.AddrFrom16(six)
}

// mapping returns the line of [hosts] that addr was given out for.
func (t *hostTable) mapping(addr netip.Addr) (policies.HostMapping, bool) {
	addr = plain(addr)
	var n uint32
	switch {
	case mappedV4.Contains(addr):
		b := addr.As4()
		n = uint32(b[1]&1)<<16 | uint32(b[2])<<8 | uint32(b[3])
	case mappedV6.Contains(addr):
		b := addr.As16()
		if [4]byte(b[8:12]) != [4]byte{} {
			return policies.HostMapping{}, false
		}
		n = uint32(b[12])<<24 | uint32(b[13])<<16 | uint32(b[14])<<8 | uint32(b[15])
	default:
		return policies.HostMapping{}, false
	}
	if n < firstMapped || n-firstMapped >= uint32(len(t.order)) {
		return policies.HostMapping{}, false
	}
	mapping, ok := t.current[t.order[n-firstMapped]]
	return mapping, ok
}
