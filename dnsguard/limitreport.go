package dnsguard

import (
	"sync/atomic"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
)

// limitReportEvery is how often questions above the rate are reported. They are
// counted in one event, not one each: a guest that floods its resolver must not
// push everything else out of the audit log.
const limitReportEvery = time.Second

// limitReport collects questions above the rate.
type limitReport struct {
	count atomic.Uint64
	next  atomic.Int64
}

// overRate counts one question above the rate and reports when it is time to.
func (g *Guard) overRate(now time.Duration) {
	g.stats.limited.Add(1)
	l := &g.limited
	l.count.Add(1)
	next := l.next.Load()
	if int64(now) < next || !l.next.CompareAndSwap(next, int64(now+limitReportEvery)) {
		return
	}
	g.sink.Emit(audit.Event{
		Time:    time.Now(),
		Sandbox: g.sandbox,
		Kind:    audit.Limit,
		Action:  egress.Deny.String(),
		Reason:  egress.ReasonLimit.String(),
		Message: "more questions than limits.dns_per_second",
		Count:   l.count.Swap(0),
	})
}
