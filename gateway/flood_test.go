package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
)

// lines keeps what was emitted.
type lines struct {
	mu  sync.Mutex
	all []audit.Event
}

func (l *lines) Emit(e audit.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

// tally counts lines, and the verdicts that they account for.
func (l *lines) tally() (written int, verdicts uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.all {
		verdicts += max(1, e.Count)
	}
	return len(l.all), verdicts
}

func recorder() (*Gateway, *lines) {
	l := new(lines)
	g := &Gateway{cfg: Config{Sandbox: "box", Audit: l}}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.floods = newFlood(g.emit)
	return g, l
}

// record writes a verdict down as a flow of its own does.
func record(g *Gateway, j session.Judged) {
	(&flow{gateway: g, session: new(session.Session)}).record(j)
}

func judged(i int, v egress.Verdict) session.Judged {
	dst := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), 9)
	return session.Judged{Flow: egress.Flow{Proto: egress.UDP, Dst: dst}, Verdict: v}
}

func TestI1_I11_AFloodOfDenialsIsMergedAndEveryVerdictAccountedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, l := recorder()
		deny := egress.Verdict{Action: egress.Deny, Reason: egress.ReasonNoRule}
		const flood = 30_000
		for i := range flood {
			record(g, judged(i, deny))
		}
		if n, _ := l.tally(); n != floodBurst {
			t.Errorf("%d lines at once, want %d", n, floodBurst)
		}
		time.Sleep(floodEvery + time.Millisecond) // the bubble's clock, not the machine's
		synctest.Wait()
		n, verdicts := l.tally()
		if n != floodBurst+1 || verdicts != flood {
			t.Errorf("after a second: %d lines for %d verdicts, want %d for %d", n, verdicts, floodBurst+1, flood)
		}
		last := l.all[n-1]
		if last.DNS != nil || last.Sandbox != "box" || last.Kind != audit.FlowOpen || last.Proto != "udp" || last.Action != "deny" ||
			last.Reason != deny.Reason.String() || last.Dst.IsValid() || last.Flow != 0 || last.Message == "" {
			t.Errorf("merged line %+v", last)
		}
		for i := range flood { // some lines came back with the second, the rest waits for Close
			record(g, judged(i, deny))
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if n, verdicts = l.tally(); n < floodBurst+floodRate || n > floodBurst+floodRate+3 || verdicts != 2*flood {
			t.Errorf("at the end: %d lines for %d verdicts, want about %d for %d", n, verdicts, floodBurst+floodRate+2, 2*flood)
		}
		record(g, judged(0, deny))
		if _, verdicts = l.tally(); verdicts != 2*flood+1 {
			t.Error("a denial after Close left no line")
		}
	})
}

func TestI1_WhatIsLetThroughIsNeverMerged(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]egress.Verdict{
		"allow":      {Action: egress.Allow},
		"inspect":    {Action: egress.Inspect},
		"would deny": {Action: egress.Allow, WouldDeny: true},
	} {
		g, l := recorder()
		for i := range 3 * floodBurst {
			record(g, judged(i, v))
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if n, _ := l.tally(); n != 3*floodBurst {
			t.Errorf("%s: %d lines, want %d", name, n, 3*floodBurst)
		}
	}
}

func TestI1_AFloodOfOneSortHidesNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, l := recorder()
		for i := range 5 * floodBurst {
			record(g, judged(i, egress.Verdict{Action: egress.Deny, Reason: egress.ReasonNoRule}))
		}
		record(g, judged(7, egress.Verdict{Action: egress.Deny, Reason: egress.ReasonMetadata}))
		if last := l.all[len(l.all)-1]; last.Reason != egress.ReasonMetadata.String() || last.Dst.As4()[3] != 7 {
			t.Errorf("last line %+v, want the denial of another sort", last)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestI11_SortsOfDenialsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, l := recorder()
		const sorts = 10 * floodKeys
		for i := range sorts {
			record(g, judged(i, egress.Verdict{Action: egress.Deny, Rule: fmt.Sprint("rule ", i)}))
		}
		if n := len(g.floods.sorts); n > floodKeys+1 {
			t.Errorf("%d sorts are kept, want at most %d and one for the rest", n, floodKeys)
		}
		time.Sleep(2 * floodIdle) // the bubble's clock: all have their burst again
		record(g, judged(0, egress.Verdict{Action: egress.Deny, Rule: "new"}))
		if n := len(g.floods.sorts); n != 1 {
			t.Errorf("%d sorts are kept after a quiet time, want 1", n)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if _, verdicts := l.tally(); verdicts != sorts+1 {
			t.Errorf("%d verdicts are accounted for, want %d", verdicts, sorts+1)
		}
	})
}
