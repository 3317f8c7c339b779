package gateway

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/policies"
)

// errRevoked ends a flow that a new policy no longer allows.
var errRevoked = errors.New("the policy no longer allows this flow")

// flow is one flow from its first packet to its end.
type flow struct {
	egress.Flow
	id      uint64
	mapping policies.HostMapping // where Mapped leads
	proxy   netip.AddrPort       // where the guest asked for it, if that was the explicit proxy
	started time.Time
	verdict egress.Verdict
	engine  *egress.Engine // that gave the verdict
	cancel  context.CancelCauseFunc
	release []func() // pins that the flow keeps
}

// flowTable holds the live flows, so that a reload can judge them again.
type flowTable struct {
	next atomic.Uint64
	mu   sync.Mutex
	live map[uint64]*flow
}

func (t *flowTable) add(f *flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = make(map[uint64]*flow)
	}
	t.live[f.id] = f
}

func (t *flowTable) remove(f *flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, f.id)
}

// snapshot copies what judging needs, so that no lock is held while flows are ended.
func (t *flowTable) snapshot() []*flow {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*flow, 0, len(t.live))
	for _, f := range t.live {
		all = append(all, f)
	}
	return all
}

// open makes the flow from src to dst with what is known of dst.
func (g *Gateway) open(proto egress.Proto, src, dst netip.AddrPort) *flow {
	f := &flow{id: g.flows.next.Add(1), started: time.Now()}
	f.Flow, f.mapping = meet(g.guard, proto, src, dst)
	return f
}

// judge asks the engine in force and keeps its answer.
func (g *Gateway) judge(f *flow) egress.Verdict {
	f.engine = g.engine.Load()
	f.verdict = f.engine.Decide(&f.Flow)
	if f.verdict.Allowed() && g.budget.spent() {
		f.verdict.Action, f.verdict.Reason = egress.Deny, egress.ReasonLimit
	}
	return f.verdict
}

// admit enters the flow into the table, holds its pins and writes the verdict down. The context ends
// when the flow is revoked; the returned function must be called when the flow is over.
func (g *Gateway) admit(ctx context.Context, f *flow) (context.Context, func(up, down int64, err error)) {
	ctx, f.cancel = context.WithCancelCause(ctx)
	if !f.Mapped {
		for _, name := range f.Pinned {
			f.release = append(f.release, g.guard.Pins().Hold(name, f.Dst.Addr()))
		}
	}
	g.flows.add(f)
	g.record(f)
	// A reload that came between the verdict and the table did not see this flow.
	if engine := g.engine.Load(); engine != f.engine && !g.stays(engine, f) {
		f.cancel(errRevoked)
	}
	return ctx, func(up, down int64, err error) {
		g.flows.remove(f)
		for _, release := range f.release {
			release()
		}
		cause := context.Cause(ctx)
		f.cancel(nil)
		g.recordClose(f, up, down, closing(err, cause))
	}
}

// closing picks the sentence that tells why a flow ended.
func closing(err, cause error) string {
	switch {
	case errors.Is(cause, errRevoked), errors.Is(cause, errBudget):
		return cause.Error()
	case err != nil && !errors.Is(err, context.Canceled):
		return err.Error()
	}
	return ""
}

// record writes the verdict of f: one line for each decision (invariant 1), or
// a share of one in a flood of denials.
func (g *Gateway) record(f *flow) {
	e := g.event(f, audit.FlowOpen)
	e.Action, e.WouldDeny = f.verdict.Action.String(), f.verdict.WouldDeny
	e.Rule, e.Reason = f.verdict.Rule, f.verdict.Reason.String()
	if f.verdict.Class != egress.ClassPublic && f.verdict.Class != egress.ClassInvalid {
		e.Class = f.verdict.Class.String()
	}
	e.Message = f.verdict.Message()
	g.floods.Emit(e)
}

func (g *Gateway) recordClose(f *flow, up, down int64, message string) {
	e := g.event(f, audit.FlowClose)
	e.BytesUp, e.BytesDown, e.Duration = up, down, time.Since(f.started)
	e.Message = message
	g.emit(e)
}

func (g *Gateway) event(f *flow, kind audit.Kind) audit.Event {
	e := audit.Event{
		Kind: kind, Flow: f.id, Proto: f.Proto.String(),
		SrcPort: f.Src.Port(), Dst: f.Dst.Addr(), Port: f.Dst.Port(), Proxy: f.proxy,
	}
	for _, n := range f.Pinned {
		e.Names = append(e.Names, n.String())
	}
	if f.Mapped {
		e.Target = f.mapping.Target.String()
	}
	if !f.Name.IsZero() {
		if f.App == egress.AppTLS {
			e.SNI = f.Name.String()
		} else {
			e.Host = f.Name.String()
		}
	}
	return e
}
