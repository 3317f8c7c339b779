package dnsguard

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
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

	// ResolvConf is the file that names the resolvers of "system"; "" is
	// /etc/resolv.conf.
	ResolvConf string

	clock clock // nil: real
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

// errConfig is wrapped by errors of New and Prepare about what they were given.
var errConfig = errors.New("the resolver can't have this configuration")

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
	g.options = upstream.Options{Clock: g.clock, Dial: cfg.Dialer, Roots: cfg.Roots, ResolvConf: cfg.ResolvConf}
	g.pins, g.tunnels = newPins(g.clock), newTunnelZones(g.clock)
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if err := g.reload(cfg.Policy, cfg.Judge); err != nil {
		g.cancel()
		return nil, err
	}
	return g, nil
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
