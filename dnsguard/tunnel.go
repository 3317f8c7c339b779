package dnsguard

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// tunnelMeter bounds what a guest can carry out in the labels of names that a
// wildcard allows: each distinct name is a message to whoever runs the zone.
//
// Names that a rule spells out carry nothing, and below "*" or under the default
// "public" the same data leaves by any connection; neither is metered.
type tunnelMeter struct {
	clock clock
	seed  maphash.Seed
	exact map[hostname.Name]bool
	zones map[hostname.Name]*tunnelZone
	// services is one zone for the service labels of all names.
	services *tunnelZone
}

// tunnelZone is what was asked below one wildcard in the window that began at
// start. Names are kept as 64-bit hashes, at most tunnelNames of them.
type tunnelZone struct {
	mu    sync.Mutex
	start time.Duration
	seen  map[uint64]struct{}
	bytes int
}

func newTunnelZone() *tunnelZone { return &tunnelZone{seen: make(map[uint64]struct{})} }

func newTunnelMeter(rules []policies.Rule, clock clock) *tunnelMeter {
	m := &tunnelMeter{
		clock: clock,
		seed:  maphash.MakeSeed(),
		exact: make(map[hostname.Name]bool),
		zones: make(map[hostname.Name]*tunnelZone),

		services: newTunnelZone(),
	}
	for _, rule := range rules {
		for _, host := range rule.Hosts {
			switch {
			case host.Any():
				return &tunnelMeter{}
			case host.Wildcard():
				m.zones[host.Base()] = newTunnelZone()
			default:
				m.exact[host.Base()] = true
			}
		}
	}
	return m
}

// admit reports whether name is within the bounds of the closest wildcard above
// it, and counts it.
func (m *tunnelMeter) admit(name hostname.Name) bool {
	if len(m.zones) == 0 || m.exact[name] {
		return true
	}
	for base := name.Parent(); !base.IsZero(); base = base.Parent() {
		if zone := m.zones[base]; zone != nil {
			extra := len(name.String()) - len(base.String()) - 1
			return zone.admit(maphash.String(m.seed, name.String()), extra, m.clock())
		}
	}
	return true
}

// admitService counts a name such as "_sip._tcp.example.com", which is allowed
// with example.com although no rule spells it out.
func (m *tunnelMeter) admitService(name, host hostname.Name) bool {
	if m.services == nil {
		return true
	}
	extra := len(name.String()) - len(host.String())
	return m.services.admit(maphash.String(m.seed, name.String()), extra, m.clock())
}

func (z *tunnelZone) admit(hash uint64, extra int, now time.Duration) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if now-z.start >= tunnelWindow {
		z.start, z.bytes = now, 0
		clear(z.seen)
	}
	if _, known := z.seen[hash]; known {
		return true
	}
	if len(z.seen) >= tunnelNames || z.bytes+extra > tunnelBytes {
		return false
	}
	z.seen[hash] = struct{}{}
	z.bytes += extra
	return true
}
