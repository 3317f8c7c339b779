package netstack

import (
	"net/netip"
	"sync"
	"time"
)

// limitEventGap is the least time between two events of one kind: a flood is
// one audit line a second, not one for each packet.
const limitEventGap = time.Second

var limitKinds = [...]LimitKind{LimitTCPConnections, LimitTCPInFlight, LimitUDPFlows, LimitPings}

// limitReporter merges what floods repeat.
type limitReporter struct {
	counters *counters
	report   func(LimitEvent)
	now      func() time.Time

	mu      sync.Mutex
	last    [len(limitKinds)]time.Time
	pending [len(limitKinds)]int64
}

func (r *limitReporter) hit(kind LimitKind, protocol string, src, dst netip.AddrPort) {
	i := 0
	for limitKinds[i] != kind {
		i++
	}
	r.counters.limits[i].Add(1)
	now := r.now()
	r.mu.Lock()
	r.pending[i]++
	if now.Sub(r.last[i]) < limitEventGap {
		r.mu.Unlock()
		return
	}
	n := r.pending[i]
	r.pending[i], r.last[i] = 0, now
	r.mu.Unlock()
	r.report(LimitEvent{Kind: kind, Protocol: protocol, Src: src, Dst: dst, Count: n, Time: now})
}
