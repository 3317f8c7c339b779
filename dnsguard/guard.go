package dnsguard

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/dnsguard/upstream"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// Config is what a Guard is made of. Policy and Judge are required.
type Config struct {
	// Sandbox is the sandbox's name or id, for the audit log.
	Sandbox string
	// Policy gives DNS, Hosts, Limits.DNSPerSecond and the wildcards of the
	// allow rules, its floors' too.
	Policy *policies.Policy
	Judge  Judge
	// Audit takes one event for each question; nil keeps none.
	Audit audit.Sink
	// Dialer opens connections to upstream servers ("udp" and "tcp"); nil is
	// net.Dialer's.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	// HasIPv6 says whether the host reaches IPv6; where it doesn't, AAAA is
	// answered empty. nil looks for a global address on the host's interfaces.
	HasIPv6 func() bool
	// Spend is asked before each question of so many bytes leaves, to whichever
	// server and for whichever time; its error keeps it back. nil lets all go.
	Spend func(bytes int) error
	// Roots verify upstream servers over TLS; nil is the host's.
	Roots *x509.CertPool

	clock      clock  // nil: real
	resolvConf string // "": /etc/resolv.conf
}

// Guard is the resolver of one sandbox.
type Guard struct {
	sandbox string
	sink    audit.Sink
	clock   clock
	hasIPv6 func() bool
	options upstream.Options
	spend   func(bytes int) error

	pins     *Pins
	inflight *inflight
	tunnels  *tunnelZones
	epoch    atomic.Pointer[epoch]
	stats    counters
	waiting  chan struct{} // a slot for each question that waits for an upstream
	tcp      chan struct{} // a slot for each connection over TCP

	mu     sync.Mutex // serialises reload and Close
	ctx    context.Context
	cancel context.CancelFunc
}

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

// errConfig is wrapped by errors of New and Prepare about what they were given.
var errConfig = errors.New("dnsguard can't start")

// New returns a Guard for one sandbox. Close ends it.
func New(cfg Config) (*Guard, error) {
	if cfg.Policy == nil || cfg.Judge == nil {
		return nil, fmt.Errorf("%w: Config needs a Policy and a Judge", errConfig)
	}
	g := &Guard{
		sandbox:  cfg.Sandbox,
		sink:     cfg.Audit,
		clock:    cfg.clock,
		hasIPv6:  cfg.HasIPv6,
		spend:    cfg.Spend,
		inflight: newInflight(maxInFlight),
		waiting:  make(chan struct{}, maxInFlight),
		tcp:      make(chan struct{}, maxTCPConns),
	}
	if g.sink == nil {
		g.sink = audit.Discard{}
	}
	if g.clock == nil {
		g.clock = newClock()
	}
	if g.hasIPv6 == nil {
		g.hasIPv6 = (&ipv6Probe{clock: g.clock}).probe
	}
	g.options = upstream.Options{Clock: g.clock, Dial: cfg.Dialer, Roots: cfg.Roots, ResolvConf: cfg.resolvConf}
	g.pins, g.tunnels = newPins(g.clock), newTunnelZones(g.clock)
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if err := g.reload(cfg.Policy, cfg.Judge); err != nil {
		g.cancel()
		return nil, err
	}
	return g, nil
}

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

// mayPin reports whether an address may be pinned to a name under the policy of e. A name of [hosts] has its target.
func (e *epoch) mayPin(name hostname.Name, addr netip.Addr) bool {
	return !e.maps(name) && e.judge.DecideName(name).Allowed() && e.judge.AllowsAddr(name, addr).Allowed()
}

// Close ends every flow, waits for what is under way and closes connections to
// upstreams. Answers after it are SERVFAIL.
func (g *Guard) Close() error {
	g.cancel()
	g.inflight.close()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.epoch.Load().upstreams.Close()
	return nil
}

// Pins returns the pin table.
func (g *Guard) Pins() *Pins { return g.pins }

// Pinned returns the names that are pinned to addr.
func (g *Guard) Pinned(addr netip.Addr) []hostname.Name { return g.pins.Names(addr) }

// Mapped returns the name of [hosts] that addr was given out for, and false if addr is no such address or its
// name is no longer mapped.
func (g *Guard) Mapped(addr netip.Addr) (hostname.Name, bool) {
	return g.epoch.Load().Mapped(addr)
}
