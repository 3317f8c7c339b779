package learn

import (
	"net/netip"
	"strings"
	"sync"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// Bounds on what a guest can make a Collector remember (invariant 11).
const (
	// maxDestinations is how many different hosts (or addresses) with port and
	// protocol are kept; the rest is counted.
	maxDestinations = 4096
	// maxMethods and maxPaths are kept for one destination; above them, every
	// method is allowed, and paths under their common directory.
	maxMethods = 16
	maxPaths   = 24
	// maxInside is how many special addresses are kept of one name.
	maxInside = 64
	// maxNotes is how many different remarks on what stays shut are kept.
	maxNotes = 256
)

// Collector gathers what was seen. Its methods may be called from any
// goroutine. The zero value is not usable; see New.
type Collector struct {
	mu      sync.Mutex
	seen    map[destination]*use
	order   []destination // as first seen
	private map[private]uint64
	mapped  map[mappedUse]uint64
	lookups map[hostname.Name]uint64
	notes   map[string]uint64
	over    uint64 // events beyond the bounds
}

var _ audit.Sink = (*Collector)(nil)

// destination is what a rule is made of. Exactly one of name and addr is set.
type destination struct {
	name     hostname.Name
	addr     netip.Addr
	port     uint16
	protocol policies.Protocol
}

// private is a special address that needs a private rule.
type private struct {
	addr     netip.Addr
	port     uint16
	protocol policies.Protocol // tcp, udp or icmp
}

// use is what was seen of a destination.
type use struct {
	flows, denied uint64
	requests      uint64
	inspected     uint64                  // flows that were looked into
	unseen        uint64                  // flows that were let through, and nobody looked into
	inside        map[netip.Addr]struct{} // special addresses that the name led to
	public        bool                    // it led to public ones too
	methods       map[string]struct{}
	paths         map[string]struct{}
	anyMethod     bool
	anyPath       bool
}

// New returns an empty Collector.
func New() *Collector {
	return &Collector{
		seen:    make(map[destination]*use),
		private: make(map[private]uint64),
		mapped:  make(map[mappedUse]uint64),
		lookups: make(map[hostname.Name]uint64),
		notes:   make(map[string]uint64),
	}
}

// Emit implements audit.Sink.
func (c *Collector) Emit(ev audit.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch ev.Kind {
	case audit.FlowOpen:
		c.flow(ev)
	case audit.HTTPRequest:
		c.request(ev)
	case audit.DNSQuery:
		c.lookup(ev)
	case audit.FlowClose, audit.PortFlow, audit.SSHForward, audit.DNSRebinding, audit.SecretSwap, audit.SecretViolation, audit.PolicyReload, audit.AccessRequest, audit.AccessAnswer, audit.AccessEnd,
		audit.Limit, audit.LinkDrop, audit.SandboxCreate, audit.SandboxStart, audit.SandboxPause, audit.SandboxResume, audit.SandboxStopping, audit.SandboxStop, audit.SandboxRemove, audit.SandboxDie,
		audit.SandboxRestart, audit.ExecCreate, audit.ExecStart, audit.ExecDie, audit.ChildRequest, audit.AuditDropped, audit.AuditRotated:
	}
}

// flow takes the verdict on a flow.
func (c *Collector) flow(ev audit.Event) {
	if !ev.Dst.IsValid() { // denials of a flood, merged into one line
		c.over += ev.Count
		return
	}
	if why := leftShut(ev); why != "" {
		c.note(why, ev)
		return
	}
	if name, ok := strings.CutPrefix(ev.Rule, hostsRule); ok {
		c.throughHosts(name, ev)
		return
	}
	names := namesOf(ev)
	switch {
	case !special(ev):
	case ev.Action == "deny" || ev.WouldDeny:
		// A guest that tries its neighbours must not write their addresses into a policy.
		c.note("an address that isn't public; only a rule with private = true, or within for its name, opens it", ev)
		return
	case len(names) == 0:
		c.needPrivate(ev)
		return
	}
	if len(names) == 0 {
		c.count(destination{addr: ev.Dst, port: ev.Port, protocol: protocolOf(ev)}, ev)
	}
	for _, n := range names {
		c.count(destination{name: n, port: ev.Port, protocol: protocolOf(ev)}, ev)
	}
}

func (c *Collector) count(d destination, ev audit.Event) {
	u := c.use(d)
	if u == nil {
		return
	}
	switch {
	case !special(ev):
		u.public = true
	case len(u.inside) >= maxInside && !has(u.inside, ev.Dst):
		c.over++
		return
	default:
		u.inside[ev.Dst] = struct{}{}
	}
	u.flows++
	shut := ev.Action == "deny" || ev.WouldDeny
	switch {
	case ev.Action == "inspect":
		u.inspected++
	case !shut: // one that was refused beside others tells nothing of what these need
		u.unseen++
	}
	if shut {
		u.denied++
	}
}

// use returns what is kept of d, or nil beyond the bound.
func (c *Collector) use(d destination) *use {
	u := c.seen[d]
	if u == nil {
		if len(c.seen) >= maxDestinations {
			c.over++
			return nil
		}
		u = &use{inside: make(map[netip.Addr]struct{}), methods: make(map[string]struct{}), paths: make(map[string]struct{})}
		c.seen[d] = u
		c.order = append(c.order, d)
	}
	return u
}

func (c *Collector) needPrivate(ev audit.Event) {
	p := private{addr: ev.Dst, port: ev.Port, protocol: transport(ev)}
	if _, known := c.private[p]; !known && len(c.private) >= maxDestinations {
		c.over++
		return
	}
	c.private[p]++
}

// request takes the verdict on one request of an inspected connection.
func (c *Collector) request(ev audit.Event) {
	if ev.Count > 0 { // as in flow
		c.over += ev.Count
		return
	}
	n, err := hostname.Parse(ev.Host)
	if err != nil {
		return
	}
	if why := leftShut(ev); why != "" {
		c.note(why, ev)
		return
	}
	if strings.HasPrefix(ev.Rule, hostsRule) {
		return // a rule for it would shut what else the line in [hosts] lets through
	}
	u := c.use(destination{name: n, port: ev.Port, protocol: protocolOf(ev)})
	if u == nil {
		return
	}
	u.requests++
	if ev.Action == "deny" || ev.WouldDeny {
		u.denied++
	}
	u.addMethod(ev.Method)
	for m := range strings.FieldsFuncSeq(ev.Overrides, func(r rune) bool { return r == ',' }) {
		u.addMethod(m)
	}
	u.addPath(ev.Path)
}

func (u *use) addMethod(m string) {
	if !plainMethod(m) || len(u.methods) >= maxMethods && !has(u.methods, m) {
		u.anyMethod = true
	} else {
		u.methods[m] = struct{}{}
	}
}

// addPath keeps a path, or its directory once there are many. Too many directories, or
// a path that no rule can vouch for, and every path is allowed.
func (u *use) addPath(raw string) {
	clean, ok := egress.CleanPath(raw)
	switch {
	case u.anyPath:
	case !ok || len(u.paths) >= 8*maxPaths:
		u.anyPath, u.paths = true, nil
	case len(u.paths) < 4*maxPaths || has(u.paths, glob(clean)):
		u.paths[glob(clean)] = struct{}{}
	default:
		u.paths[directory(glob(clean))+"/**"] = struct{}{}
	}
}

// lookup takes the verdict on a DNS question.
func (c *Collector) lookup(ev audit.Event) {
	if ev.DNS == nil { // as in flow
		c.over += ev.Count
		return
	}
	n, err := hostname.Parse(ev.DNS.Name)
	if err != nil {
		return
	}
	if _, known := c.lookups[n]; !known && len(c.lookups) >= maxDestinations {
		c.over++
		return
	}
	c.lookups[n]++
}

func (c *Collector) note(why string, ev audit.Event) {
	what := ev.Host
	if what == "" {
		what = strings.Join(ev.Names, ", ")
	}
	if ev.Dst.IsValid() {
		what = strings.TrimPrefix(what+" at "+netip.AddrPortFrom(ev.Dst, ev.Port).String(), " at ")
	}
	key := audit.Printable(ev.Proto + " " + what + ": " + why)
	if _, known := c.notes[key]; !known && len(c.notes) >= maxNotes {
		c.over++
		return
	}
	c.notes[key]++
}

func has[T comparable](set map[T]struct{}, s T) bool { _, ok := set[s]; return ok }

// plainMethod reports whether m may stand in a rule.
func plainMethod(m string) bool {
	for i := range len(m) {
		if m[i] < 'A' || m[i] > 'Z' {
			return false
		}
	}
	return m != "" && len(m) <= 32
}
