package session

import (
	"time"

	"github.com/msb-project/msb/egress"
)

// approvalTime is how long a denial is held for a person to approve the flow, zero for not at all.
func (s *Session) approvalTime() time.Duration {
	if s.rules.Approval == nil || !s.verdict.Reason.Reportable() {
		return 0
	}
	return s.rules.Approval(&s.flow, s.verdict)
}

// Answer ends a Wait with a person's verdict, which stands in for the engine's: what comes after it in the
// flow, and the dial fuse, are as for any other verdict.
func (s *Session) Answer(allow bool) Step {
	if s.state != stateWaiting {
		return Step{Action: Continue}
	}
	if s.rules.owns(&s.flow) { // since when it was asked
		allow = false
	}
	if !allow || s.verdict.Class != egress.ClassPublic || s.rules.spent() {
		return s.denied()
	}
	v := s.verdict
	v.Action = egress.Allow
	return s.resume(v)
}

// Expire ends a Wait to which nobody answered: the denial stands.
func (s *Session) Expire() Step { return s.Answer(false) }

// resume goes on where the flow began to wait.
func (s *Session) resume(v egress.Verdict) Step {
	if s.heldAt == egress.StageName {
		s.state = stateFirst
		return s.named(v)
	}
	return s.connect(v)
}
