package supervisor

import (
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// pause stops the guest where it is, or lets it go on. While it is paused nothing is asked of it, neither does its time
// run: of its clock, of its lifetime, and until it counts as unused.
func (s *supervisor) pause(paused bool) error {
	s.pauseMu.Lock()
	defer s.pauseMu.Unlock()
	if s.paused.Load() == paused {
		return nil
	}
	if paused {
		s.paused.Store(true) // first: no call that begins now would be answered
		if err := s.machine.Pause(); err != nil {
			s.paused.Store(false)
			return err
		}
	}
	if err := s.named.recordRun(func(r *state.RunRecord) { r.Paused = paused }); err != nil {
		_ = s.machine.Resume() // its only error is that it is gone
		s.paused.Store(false)
		return err
	}
	s.life.stand(time.Now(), paused)
	if paused {
		s.event(audit.SandboxPause, "")
		return nil
	}
	if err := s.machine.Resume(); err != nil {
		return err
	}
	s.resumed.Store(true)
	s.paused.Store(false)
	s.event(audit.SandboxResume, "")
	return nil
}

// refuse is the answer to calls that only the guest could answer.
func (s *supervisor) refuse() error {
	if s.paused.Load() {
		return agentclient.ErrPaused
	}
	return nil
}
