package egress

import (
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// watch has every https connection inspected for one rule that needs each request's Host, not only those to the rule's
// own names: a rule that denies names, or is about requests. A server may serve many names, and a connection that was opened for one of them carries
// requests for any (domain fronting), so that such a rule holds only where each request's Host is seen.
type watch struct {
	rule string
	// closed are the names that tls.bypass keeps closed. A name that the policies below keep closed counts
	// too, so that a connection isn't opened only to be refused there.
	closed nameIndex[struct{}]
}

// newWatch returns nil if p inspects nothing for the sake of other rules. above are the policies over p, which
// are judged together with it.
func newWatch(p *policies.Policy, above []*policies.Policy) *watch {
	if p.TLS.Inspect == policies.InspectNone || p.Egress.Default == policies.DefaultPublic && p.TLS.Inspect != policies.InspectAll {
		return nil
	}
	cause, ok := policies.InspectionCause(p)
	var w watch
	for i := len(above) - 1; i >= 0 && !ok; i-- {
		cause, ok = policies.OwnInspectionCause(above[i])
		w.leave(above[i])
	}
	if !ok {
		return nil
	}
	w.rule = cause.Name
	for ; p != nil; p = p.Floor {
		w.leave(p)
	}
	return &w
}

func (w *watch) leave(p *policies.Policy) {
	if p.TLS.Inspect == policies.InspectNone {
		w.closed.add(hostname.MustParsePattern("*"), struct{}{})
	}
	for _, b := range p.TLS.Bypass {
		w.closed.add(b, struct{}{})
	}
}

// watches reports whether a connection to n is inspected for the sake of other rules.
func (j *judgement) watches(n hostname.Name) bool {
	return j.e.watch != nil && !j.e.watch.closed.has(n)
}

// inspects reports whether a TLS connection to n that the default lets out is inspected.
func (j *judgement) inspects(n hostname.Name) bool {
	return !j.barred(n) && (j.e.inspectAll || j.watches(n))
}

// unpinnedBypass reports whether the client says a name under bypass at an address that isn't the name's, where
// connections are inspected: any client could keep its connection closed by saying it.
func (j *judgement) unpinnedBypass(n hostname.Name) bool {
	return !j.pinned && j.barred(n) && (j.e.inspectAll || j.e.watch != nil)
}

// leavesSome reports whether some names are never inspected.
func (e *Engine) leavesSome() bool {
	return e.bypass.size > 0 || e.watch != nil && e.watch.closed.size > 0
}

// traceWatch says for which rule a connection is inspected that no rule of its own asks for.
func traceWatch(j *judgement, v Verdict) {
	if j.trace == nil || v.Action != Inspect || j.e.watch == nil || j.e.inspectAll || j.secret != nil || j.mustInspect != nil {
		return
	}
	if r := j.inspect; r != nil && (r.request || r.proto != policies.HTTPS) || r == nil && j.f.App != AppTLS {
		return
	}
	j.trace.add("inspection", "rule ", j.e.watch.rule, " needs the Host of each request, so that https is inspected (tls.inspect = \"auto\")")
}
