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
	"github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/hostname"
)

// errRevoked ends a flow that a new policy no longer allows.
var errRevoked = errors.New("the policy no longer allows this flow")

// errHost ends a flow whose destination became the host's.
var errHost = errors.New("its destination became one of the host's own addresses")

// flow is one flow from its first packet to its end: its session, and the state that is needed to carry out its
// steps.
type flow struct {
	gateway *Gateway
	cancel  context.CancelCauseFunc

	mu      sync.Mutex // serialises the calls of session: a reload comes from another goroutine
	session *session.Session
	resumed *session.Step // the next step of a flow that waited

	id       uint64
	reported bool // the audit log has a line with id
	started  time.Time
	release  []func() // give up the pins that the flow holds
}

// flowTable holds the live flows, so that a reload can judge them again.
type flowTable struct {
	next atomic.Uint64
	mu   sync.Mutex
	live map[*flow]struct{}
}

func (t *flowTable) add(f *flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = make(map[*flow]struct{})
	}
	t.live[f] = struct{}{}
}

func (t *flowTable) remove(f *flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, f)
}

// all copies the live flows, so that no lock is held while they are ended.
func (t *flowTable) all() []*flow {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*flow, 0, len(t.live))
	for f := range t.live {
		all = append(all, f)
	}
	return all
}

// open begins a flow. The context ends with ctx and when a reload ends the flow; forget must be called when
// the flow is over.
func (g *Gateway) open(ctx context.Context, proto egress.Proto, src, dst netip.AddrPort) (context.Context, *flow, session.Step) {
	f := &flow{gateway: g, started: time.Now()}
	rules := g.rules.Load()
	var step session.Step
	f.session, step = session.Open(rules, g.guard, proto, src, dst)
	switch step.Action {
	case session.Reject, session.Drop, session.ToDNS: // over at once: a reload has nothing to end
		f.cancel = func(error) {}
		return ctx, f, step
	case session.Refuse, session.NeedBytes, session.NeedNames, session.Wait, session.Dial, session.Relay,
		session.Inspect, session.Continue, session.End:
	}
	ctx, f.cancel = context.WithCancelCause(ctx)
	g.flows.add(f)
	// A reload that came between the verdict and the table did not see this flow.
	if now := g.rules.Load(); now != rules {
		f.revise(now)
	}
	return ctx, f, step
}

// forget removes the flow from the table and gives up its pins.
func (f *flow) forget() {
	f.gateway.flows.remove(f)
	f.unpin()
	f.cancel(nil)
}

// revise judges the flow by other rules, and reports whether that ended it.
func (f *flow) revise(rules *session.Rules) (ended bool) {
	return f.judgedAgain(errRevoked, func() session.Step { return f.session.Revise(rules) })
}

// rejudge judges the flow again when the host's addresses or routes changed.
func (f *flow) rejudge() { f.judgedAgain(errHost, f.session.Rejudge) }

// judgedAgain judges the flow again by calling judge, and reports whether that ends it. A flow that waits continues
// with the step that judge returns.
func (f *flow) judgedAgain(cause error, judge func() session.Step) (ended bool) {
	f.mu.Lock()
	step := judge()
	if step.Action != session.Continue && step.Action != session.End {
		f.resumed = &step
	}
	f.mu.Unlock()
	if step.Action == session.End {
		f.cancel(cause)
	}
	return step.Action == session.End
}

func (f *flow) data(first []byte, end session.Ending) session.Step {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.session.Data(first, end)
}

func (f *flow) resolved(addrs []netip.Addr, err error) session.Step {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.session.Resolved(addrs, err)
}

func (f *flow) dialed(err error) session.Step {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.session.Dialed(err)
}

// wait ends a Wait: by the verdict of rules that came meanwhile, else by the denial, since msb can't ask a person yet.
func (f *flow) wait() session.Step {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.resumed != nil {
		return *f.resumed
	}
	return f.session.Expire()
}

func (f *flow) judged() session.Judged {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.session.Judged()
}

// Request implements secretproxy.Requests.
func (f *flow) Request(r *egress.Flow) (v egress.Verdict, done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, end := f.session.Request(r)
	if v.Allowed() && f.use(v.Rule) != nil {
		end()
		return egress.Verdict{Rule: v.Rule, Reason: egress.ReasonLimit, Name: v.Name, Addr: v.Addr}, func() {}
	}
	return v, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		end()
	}
}

// admit holds the pins of a flow that is about to be let through and records its verdict. The caller must call the
// returned function when the flow is over.
func (f *flow) admit(ctx context.Context) (done func(up, down int64, err error)) {
	j := f.judged()
	if !j.Flow.Mapped {
		for _, name := range j.Flow.Pinned {
			f.release = append(f.release, f.gateway.guard.Pins().Hold(name, j.Flow.Dst.Addr()))
		}
	}
	f.record(j)
	return func(up, down int64, err error) {
		f.unpin()
		f.recordClose(j, up, down, closing(err, context.Cause(ctx)))
	}
}

// use reports a use of a rule, which Config.Use may refuse.
func (f *flow) use(rule string) error {
	if f.gateway.cfg.Use == nil {
		return nil
	}
	return f.gateway.cfg.Use(f.id, rule)
}

func (f *flow) unpin() {
	for _, release := range f.release {
		release()
	}
	f.release = nil
}

// closing picks the sentence that says why a flow ended.
func closing(err, cause error) string {
	switch {
	case errors.Is(cause, errRevoked), errors.Is(cause, errHost), errors.Is(cause, errBudget):
		return cause.Error()
	case err != nil && !errors.Is(err, context.Canceled):
		return err.Error()
	}
	return ""
}

// verdicts records the verdicts of a step.
func (f *flow) verdicts(step *session.Step) {
	for _, j := range step.Skipped {
		f.record(j)
	}
	if step.Decided && (step.Action == session.Reject || step.Action == session.Refuse || step.Action == session.Drop) {
		f.record(f.judged())
	}
}

// record writes one verdict: one line for each decision (invariant 1), or a share of one in a flood of
// denials. Each line of a flow has a number of its own: a name that is asked of the explicit proxy has a
// verdict for each address.
func (f *flow) record(j session.Judged) {
	if f.id == 0 || f.reported {
		f.id, f.started = f.gateway.flows.next.Add(1), time.Now()
	}
	f.reported = true
	e := f.event(j, audit.FlowOpen)
	v := &j.Verdict
	e.Action, e.WouldDeny = v.Action.String(), v.WouldDeny
	e.Rule, e.Reason = v.Rule, v.Reason.String()
	if v.Class != egress.ClassPublic && v.Class != egress.ClassInvalid {
		e.Class = v.Class.String()
	}
	e.Message = v.Message()
	f.gateway.floods.Emit(e)
}

func (f *flow) recordClose(j session.Judged, up, down int64, message string) {
	e := f.event(j, audit.FlowClose)
	e.BytesUp, e.BytesDown, e.Duration = up, down, time.Since(f.started)
	e.Message = message
	f.gateway.emit(e)
}

func (f *flow) event(j session.Judged, kind audit.Kind) audit.Event {
	e := audit.Event{
		Kind: kind, Flow: f.id, Proto: j.Flow.Proto.String(),
		SrcPort: j.Flow.Src.Port(), Dst: j.Flow.Dst.Addr(), Port: j.Flow.Dst.Port(),
	}
	f.mu.Lock()
	_, e.Proxy = f.session.Proxied()
	f.mu.Unlock()
	for _, n := range j.Flow.Pinned {
		e.Names = append(e.Names, n.String())
	}
	if j.Flow.Mapped {
		e.Target = j.Target.String()
	}
	switch name := j.Flow.Name; {
	case name == hostname.Name{}:
	case j.Flow.App == egress.AppTLS:
		e.SNI = name.String()
	default:
		e.Host = name.String()
	}
	return e
}
