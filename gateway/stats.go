package gateway

import (
	"cmp"
	"slices"
	"sync"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/secretproxy"
)

// Stats is what a gateway counted since it was made. The guest influences only numbers in it.
type Stats struct {
	// Clients are the connections and UDP flows of published ports that are alive now; Link has those of the guest's.
	Clients int
	// Opened are flows that were let through, WouldDeny verdicts that report mode let through.
	Opened, WouldDeny uint64
	// Denied has the verdicts that kept something from the guest, or a client from a published port, in the order of
	// their kinds and reasons. Those of a flood are counted up to a second later, with their line of the audit log.
	Denied []DeniedCount
	Link   netstack.Stats
	DNS    dnsguard.Stats
	Proxy  secretproxy.Stats
	// EgressUsed is what counts against [limits] egress_bytes, EgressLimit that limit, 0 for none.
	EgressUsed, EgressLimit int64
}

// DeniedCount counts denials of one kind that have one reason.
type DeniedCount struct {
	Kind   audit.Kind
	Reason string
	Count  uint64
}

// Stats returns the counts so far.
func (g *Gateway) Stats() Stats {
	s := Stats{
		Clients: g.inbound.clients.count(),
		Link:    g.stack.Stats(), DNS: g.guard.Stats(), Proxy: g.proxy.Stats(),
		EgressUsed: g.budget.used.Load(), EgressLimit: g.budget.limit.Load(),
	}
	g.tally.read(&s)
	return s
}

// tally counts verdicts by their lines of the audit log.
type tally struct {
	mu                sync.Mutex
	opened, wouldDeny uint64
	denied            map[deniedKey]uint64
}

type deniedKey struct {
	kind   audit.Kind
	reason string
}

// maxDeniedKeys bounds the kinds and reasons that are counted separately. Both are of closed sets, some dozens
// together; the bound holds if a reason is ever made of a guest's bytes.
const maxDeniedKeys = 256

// otherReason is that of all beyond maxDeniedKeys.
const otherReason = "other"

func (t *tally) count(e *audit.Event) {
	switch e.Kind {
	case audit.FlowOpen, audit.DNSQuery, audit.HTTPRequest, audit.PortFlow, audit.Limit:
	default: // no verdict, or one that stands beside its own: a violation beside its request's
		return
	}
	n := max(1, e.Count)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.WouldDeny:
		t.wouldDeny += n
	case e.Action == egress.Deny.String():
		t.deny(deniedKey{e.Kind, e.Reason}, n)
		return
	}
	if e.Kind == audit.FlowOpen {
		t.opened += n
	}
}

func (t *tally) deny(k deniedKey, n uint64) {
	if t.denied == nil {
		t.denied = make(map[deniedKey]uint64)
	}
	if _, known := t.denied[k]; !known && len(t.denied) >= maxDeniedKeys {
		k.reason = otherReason
	}
	t.denied[k] += n
}

func (t *tally) read(s *Stats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Opened, s.WouldDeny = t.opened, t.wouldDeny
	for k, n := range t.denied {
		s.Denied = append(s.Denied, DeniedCount{k.kind, k.reason, n})
	}
	slices.SortFunc(s.Denied, func(a, b DeniedCount) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Reason, b.Reason))
	})
}
