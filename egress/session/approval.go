package session

import (
	"time"

	"github.com/msb-project/msb/egress"
)

// approvalTime is how long a denial waits for a person to approve the flow; zero means that it doesn't wait.
func (s *Session) approvalTime() time.Duration {
	if s.rules.Approval == nil || !s.verdict.Reason.Reportable() {
		return 0
	}
	return s.rules.Approval(&s.flow, s.verdict)
}

// Answer ends a Wait with a person's verdict, which replaces the engine's. The later steps of the flow and the dial
// fuse are those of any other verdict.
func (s *Session) Answer(allow bool) Step {
	if s.state != stateWaiting {
		return Step{Action: Continue}
	}
	if s.rules.owns(&s.flow) { // the host may have got the address meanwhile
		allow = false
	}
	if !allow || s.verdict.Class != egress.ClassPublic || s.rules.spent() {
		return s.denied()
	}
	v := s.verdict
	v.Action = egress.Allow
	return s.resume(v)
}

// Expire ends a Wait that nobody answered: the flow is denied.
func (s *Session) Expire() Step { return s.Answer(false) }

// resume continues the flow at the stage where it began to wait.
func (s *Session) resume(v egress.Verdict) Step {
	if s.heldAt == egress.StageName {
		s.state = stateFirst
		return s.named(v)
	}
	return s.connect(v)
}
