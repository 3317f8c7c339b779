package egress

import "strings"

// Step is one step of a judgement, for people.
type Step struct {
	// What names the step: "special ranges", "deny rules", "allow rules",
	// "verdict", "operator's floor", "report mode".
	What string `json:"step"`
	// Result says what came of it.
	Result string `json:"result"`
}

// Explain is Decide with the steps that led to the verdict. Both run the same
// code.
func (e *Engine) Explain(f *Flow) (Verdict, []Step) {
	t := &trace{}
	v := e.decide(f, t)
	return v, t.steps
}

// trace collects steps. A nil trace, which Decide has, collects nothing.
type trace struct{ steps []Step }

// add takes the result in parts, so that nothing is joined where nobody asked.
func (t *trace) add(what string, result ...string) {
	if t == nil {
		return
	}
	t.steps = append(t.steps, Step{What: what, Result: strings.Join(result, "")})
}

func (t *trace) verdict(v Verdict) {
	if t == nil {
		return
	}
	result := v.Action.String() + ": " + v.Reason.Sentence()
	if v.Rule != "" {
		result += " [" + v.Rule + "]"
	}
	t.add("verdict", result)
}

// traceDeny tells what the deny rules found.
func traceDeny(j *judgement) {
	switch {
	case j.trace == nil:
	case j.denied != nil:
		j.trace.add("deny rules", "rule ", j.denied.name, " matches")
	case j.mustName != nil:
		j.trace.add("deny rules", "rule ", j.mustName.name, " denies one of the names at this address, so the name must be seen")
	case j.mustInspect != nil:
		j.trace.add("deny rules", "rule ", j.mustInspect.name, " is about requests, so each must be seen")
	default:
		j.trace.add("deny rules", "none matches")
	}
}

// traceAllow tells what the allow rules found.
func traceAllow(j *judgement) {
	if j.trace == nil {
		return
	}
	found := false
	for _, x := range [...]struct {
		r    *rule
		does string
	}{
		{j.relay, " allows it"},
		{j.peek, " allows it if the TLS hello or the Host header fits"},
		{j.inspect, " allows it under inspection"},
	} {
		if x.r != nil {
			found = true
			j.trace.add("allow rules", "rule ", x.r.name, x.does)
		}
	}
	if j.secret != nil {
		j.trace.add("secrets", "one may go to this host, by rule ", j.secret.name)
	}
	switch {
	case found:
		return
	case j.closestRule != nil:
		j.trace.add("allow rules", "rule ", j.closestRule.name, " comes closest: ", j.closestMiss.Sentence())
	default:
		j.trace.add("allow rules", "none matches")
	}
	if reason, ok := j.byDefault(); ok {
		j.trace.add("default", reason.Sentence())
	} else {
		j.trace.add("default", "deny")
	}
}
