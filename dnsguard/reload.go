package dnsguard

import (
	"fmt"
	"slices"

	"github.com/msb-project/msb/dnsguard/upstream"
	"github.com/msb-project/msb/policies"
)

// reload puts p and judge in force for every question from now on. What is kept
// of earlier answers is dropped, and so are pins that judge no longer allows;
// pins that it does allow, and the addresses of [hosts], stay. On an error
// everything stays as it was.
func (g *Guard) reload(p *policies.Policy, judge Judge) error {
	next, err := g.Prepare(p, judge)
	if err != nil {
		return err
	}
	next.Install()
	return nil
}

// Prepared is a reload of which everything that can fail is done. Install or
// Discard must be called, and no other Prepare before.
type Prepared struct {
	guard     *Guard
	next, old *epoch
}

// Prepare is the first half of a reload.
func (g *Guard) Prepare(p *policies.Policy, judge Judge) (*Prepared, error) {
	if p == nil || judge == nil {
		return nil, fmt.Errorf("%w: a reload needs a policy and a judge", errConfig)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	next, old := &epoch{policy: p, judge: judge, cache: newCache(), pins: g.pins}, g.epoch.Load()
	var err error
	var hosts *hostTable
	if old != nil {
		hosts = old.hosts
	}
	if next.hosts, err = hosts.with(p.Hosts); err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	if old != nil && slices.Equal(old.policy.DNS.Servers, p.DNS.Servers) {
		next.upstreams = old.upstreams
	} else if next.upstreams, err = upstream.New(p.DNS.Servers, g.options); err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	if old != nil && old.policy.Limits.DNSPerSecond == p.Limits.DNSPerSecond {
		next.bucket = old.bucket
	} else {
		next.bucket = newBucket(p.Limits.DNSPerSecond)
	}
	next.tunnels = g.tunnels.meter(p)
	return &Prepared{g, next, old}, nil
}

// Install puts what was prepared in force.
func (p *Prepared) Install() {
	p.guard.mu.Lock()
	defer p.guard.mu.Unlock()
	p.guard.install(p.next, p.old)
}

// Discard leaves everything as it was.
func (p *Prepared) Discard() {
	if p.old == nil || p.next.upstreams != p.old.upstreams {
		p.next.upstreams.Close()
	}
}

// install makes next the epoch in force; the caller holds mu.
func (g *Guard) install(next, old *epoch) {
	_, maxTTL := ttlBounds(next.policy.DNS)
	g.pins.maxTTL.Store(int64(maxTTL))
	if old != nil {
		next.id = old.id + 1
	}
	g.epoch.Store(next)
	if old == nil {
		return
	}
	g.pins.retain(next.mayPin)
	if old.upstreams != next.upstreams {
		old.upstreams.Close()
	}
}
