package supervisor

import (
	"sync"
	"sync/atomic"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// pause says whether the guest is paused.
type pause struct {
	s       *supervisor
	mu      sync.Mutex  // held while on changes
	on      atomic.Bool // it is
	resumed atomic.Bool // since the guest's clock was looked at
}

// set stops the guest where it is, or lets it go on. While it is paused it is asked nothing, and no time passes: not
// for its clock, not for its lifetime, and not until it counts as unused.
func (p *pause) set(paused bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on.Load() == paused {
		return nil
	}
	if paused {
		p.on.Store(true) // first: no call that begins now would be answered
		if err := p.s.machine.Pause(); err != nil {
			p.on.Store(false)
			return err
		}
	}
	if err := p.s.named.recordRun(func(r *state.RunRecord) { r.Paused = paused }); err != nil {
		_ = p.s.named.recordRun(func(r *state.RunRecord) { r.Paused = !paused }) // the next record has it, at least
		if paused {
			_ = p.s.machine.Resume() // its only error is that it is gone
			p.on.Store(false)
		}
		return err // a guest that was to go on stays paused, with all that stands still
	}
	p.s.life.setPaused(p.s.now(), paused)
	if paused {
		p.s.event(audit.SandboxPause, "")
		return nil
	}
	if err := p.s.machine.Resume(); err != nil {
		return err
	}
	p.resumed.Store(true)
	p.on.Store(false)
	p.s.event(audit.SandboxResume, "")
	return nil
}

// refuse is the answer to calls that only the guest could answer.
func (p *pause) refuse() error {
	if p.on.Load() {
		return agentclient.ErrPaused
	}
	return nil
}
