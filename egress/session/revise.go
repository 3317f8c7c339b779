package session

import (
	"slices"

	"github.com/msb-project/msb/egress"
)

// Revise puts other rules in force for what is left of the flow. The step is Continue or, for a flow that may
// not go on as it is, End; a flow that waits is judged again.
func (s *Session) Revise(rules *Rules) Step {
	old := s.rules
	s.rules = rules
	switch s.state {
	case stateDialing, stateRunning:
		if !s.mayContinue(old) {
			s.state = stateOver
			return Step{Action: End}
		}
	case stateWaiting:
		s.lookUp()
		if v := s.decide(); v.Allowed() || !v.Reason.Reportable() {
			return s.resume(v)
		}
	case stateFirst: // the next verdict is by the new rules, and by what [hosts] makes of the names now
		s.lookUp()
	case stateOver, stateAsking, stateNaming:
	}
	return Step{Action: Continue}
}

// Rejudge is Revise by the rules that the flow has: the host's addresses or routes changed.
func (s *Session) Rejudge() Step { return s.Revise(s.rules) }

// mayContinue reports whether a flow may go on under the rules in force, and every request that is under way on it.
func (s *Session) mayContinue(old *Rules) bool {
	if s.flow.Mapped {
		name, ok := s.names.Mapped(s.flow.Dst.Addr())
		target, mapped := s.rules.Hosts[name]
		if !ok || !mapped || name != s.host || target != old.Hosts[name] {
			return false
		}
	} else if slices.ContainsFunc(s.flow.Pinned, s.rules.leadsElsewhere) {
		return false
	}
	s.flow.Local = s.rules.owns(&s.flow)
	if !compatible(s.verdict.Action, s.rules.decide(&s.flow).Action) {
		return false
	}
	for _, f := range s.requests {
		if !s.rules.decide(&f).Allowed() {
			return false
		}
	}
	return true
}

// compatible reports whether a flow that runs under one action may go on when new rules give it another. An
// inspected flow is judged request by request, so a mere Allow keeps it; a relayed one that must be looked
// into from now on can't be.
func compatible(running, now egress.Action) bool {
	switch now {
	case egress.Deny:
		return false
	case egress.Allow:
		return true
	case egress.Peek, egress.Inspect:
		return running == egress.Inspect
	}
	return false
}

// Request judges one request of an inspected connection, and keeps it until done is called: rules that come
// meanwhile are asked about it too. f is the connection's flow at StageRequest.
func (s *Session) Request(f *egress.Flow) (v egress.Verdict, done func()) {
	if s.state != stateRunning || s.verdict.Action != egress.Inspect {
		return egress.Verdict{Reason: egress.ReasonInvalid, Addr: f.Dst.Addr()}, func() {}
	}
	v = s.rules.decide(f)
	if !v.Allowed() {
		return v, func() {}
	}
	if s.requests == nil {
		s.requests = make(map[uint64]egress.Flow)
	}
	s.number++
	n := s.number
	s.requests[n] = *f
	return v, func() { delete(s.requests, n) }
}

// Decide is Request for a request that is over at once, as in a capture.
func (s *Session) Decide(f *egress.Flow) egress.Verdict {
	v, done := s.Request(f)
	done()
	return v
}
