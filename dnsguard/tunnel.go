package dnsguard

import (
	"sync"
	"time"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// tunnelMeter bounds what a guest can carry out in questions below a wildcard:
// each that goes upstream is a message to whoever runs the zone, by its labels,
// by its type and by when it is asked.
//
// Names that a rule spells out, and those that only the default "public" allows,
// aren't metered.
type tunnelMeter struct {
	zones  *tunnelZones
	levels []tunnelLevel // the policy, then each floor below it
}

// tunnelLevel is what one policy says of names.
type tunnelLevel struct {
	exact map[hostname.Name]bool
	below map[hostname.Name]bool // the bases of its wildcards; the zero Name is "*"
}

// tunnelZones counts for the life of a Guard: a reload must not give anything
// back. A zone is what was asked below one wildcard, whichever policy has it.
type tunnelZones struct {
	clock clock
	mu    sync.Mutex
	zones map[hostname.Name]*tunnelZone
	// services is one zone for the service labels of all names.
	services tunnelZone
}

// tunnelZone counts the window that began at start.
type tunnelZone struct {
	start            time.Duration
	questions, bytes int
}

func newTunnelZones(clock clock) *tunnelZones {
	return &tunnelZones{clock: clock, zones: make(map[hostname.Name]*tunnelZone)}
}

// meter returns a meter for p and the floors below it that goes on with the
// counts of z.
func (z *tunnelZones) meter(p *policies.Policy) *tunnelMeter {
	m := &tunnelMeter{zones: z}
	for ; p != nil; p = p.Floor {
		level := tunnelLevel{exact: make(map[hostname.Name]bool), below: make(map[hostname.Name]bool)}
		for _, rule := range p.Egress.Allow {
			for _, host := range rule.Hosts {
				if host.Wildcard() {
					level.below[host.Base()] = true
				} else {
					level.exact[host.Base()] = true
				}
			}
		}
		m.levels = append(m.levels, level)
	}
	return m
}

// wildcard returns the base of the closest wildcard above name, and false if
// name is spelled out or below none.
func (l *tunnelLevel) wildcard(name hostname.Name) (base hostname.Name, ok bool) {
	if l.exact[name] {
		return base, false
	}
	for base = name.Parent(); !base.IsZero(); base = base.Parent() {
		if l.below[base] {
			return base, true
		}
	}
	return base, l.below[base]
}

// metered reports whether questions for s are counted.
func (m *tunnelMeter) metered(s subject) bool { return len(m.bases(s)) > 0 || s.name != s.host }

// bases are the wildcards that s is counted below, each once.
func (m *tunnelMeter) bases(s subject) map[hostname.Name]bool {
	bases := make(map[hostname.Name]bool, len(m.levels))
	for i := range m.levels {
		if base, ok := m.levels[i].wildcard(s.name); ok {
			bases[base] = true
		}
	}
	return bases
}

// admit reports whether one more question for s may go upstream, and counts it
// below every wildcard that it is below, and once more if s is a service of its
// host, such as "_sip._tcp.example.com".
func (m *tunnelMeter) admit(s subject) bool {
	bases := m.bases(s)
	m.zones.mu.Lock()
	defer m.zones.mu.Unlock()
	now := m.zones.clock()
	charges := make(map[*tunnelZone]int, len(bases)+1)
	for base := range bases {
		charges[m.zones.zone(base, now)] = extraBytes(s.name, base)
	}
	if s.name != s.host {
		charges[&m.zones.services] = extraBytes(s.name, s.host)
	}
	for zone, extra := range charges {
		if !zone.allows(extra, now) {
			return false
		}
	}
	for zone, extra := range charges {
		zone.questions++
		zone.bytes += extra
	}
	return true
}

// extraBytes is how much of name stands in front of base and its dot.
func extraBytes(name, base hostname.Name) int {
	if base.IsZero() {
		return len(name.String())
	}
	return len(name.String()) - len(base.String()) - 1
}

// zone returns the zone below base; a new one takes the place of those whose
// window is over, so that reloads don't add up. The caller holds mu.
func (z *tunnelZones) zone(base hostname.Name, now time.Duration) *tunnelZone {
	if zone := z.zones[base]; zone != nil {
		return zone
	}
	for old, zone := range z.zones {
		if now-zone.start >= tunnelWindow {
			delete(z.zones, old)
		}
	}
	zone := &tunnelZone{start: now}
	z.zones[base] = zone
	return zone
}

// allows reports whether a question with extra more bytes is within the bounds.
func (z *tunnelZone) allows(extra int, now time.Duration) bool {
	if now-z.start >= tunnelWindow {
		*z = tunnelZone{start: now}
	}
	return z.questions < tunnelQuestions && z.bytes+extra <= tunnelBytes
}
