package dnsguard

import (
	"net/netip"

	"github.com/msb-project/msb/dnsguard/upstream"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// epoch is everything that a reload replaces. What one question sees is of one
// epoch; its answer is kept in that epoch's cache, which goes with it.
type epoch struct {
	id        uint64
	policy    *policies.Policy
	judge     Judge
	hosts     *hostTable
	tunnels   *tunnelMeter
	bucket    *bucket
	upstreams *upstream.Set
	cache     *cache
	pins      *Pins
}

// maps implements nameTable.
func (e *epoch) maps(name hostname.Name) bool {
	_, ok := e.hosts.current[name]
	return ok
}

// Mapped implements nameTable.
func (e *epoch) Mapped(addr netip.Addr) (hostname.Name, bool) {
	m, ok := e.hosts.mapping(addr)
	return m.Name, ok
}

// Pinned implements nameTable.
func (e *epoch) Pinned(addr netip.Addr) []hostname.Name { return e.pins.Names(addr) }

// mayPin reports whether an address may be pinned to a name under the policy of e. A name of [hosts] has its target.
func (e *epoch) mayPin(name hostname.Name, addr netip.Addr) bool {
	return !e.maps(name) && e.judge.DecideName(name).Allowed() && e.judge.AllowsAddr(name, addr).Allowed()
}
