package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// cleanUp ends everything that run started, in the order that loses nothing: the guest first, so that
// its last bytes are judged and written down.
func (s *supervisor) cleanUp() error {
	s.cancel(errCallerGone)
	var errs []error
	if s.agent != nil {
		errs = append(errs, s.stopAgent())
	}
	if s.machine != nil {
		_ = s.machine.Kill() // its only error is that it is gone already
	}
	if s.gateway != nil {
		errs = append(errs, s.gateway.Close())
		if denied := s.denials.Summary(); !denied.Empty() {
			_ = s.out.Write(state.StatusLine{Denied: &denied}) // the caller of one with a name may have gone
		}
	}
	s.work.Wait()
	s.transfer.close()
	if s.gateway != nil {
		errs = append(errs, s.access.settleOffline())
	}
	if s.records != nil {
		s.event(audit.SandboxStop, "")
		if s.goesWithRun() {
			s.event(audit.SandboxRemove, "")
		}
		errs = append(errs, s.records.Close(s.policy))
	}
	return errors.Join(errs...)
}

// stopAgent lets a guest with a disk that will be kept, or a directory of the host's, write back what it holds.
func (s *supervisor) stopAgent() error {
	dead := errors.Is(context.Cause(s.ctx), agentclient.ErrAgentDead) // waiting for a dead agent would only delay the error that callers wait for
	keeps := (s.plan.Keep || s.plan.Name != "") && s.plan.UpperDisk != ""
	if (keeps || s.plan.Shares()) && !dead {
		if s.pause.on.Load() {
			_ = s.machine.Resume() // its only error is that it is gone
		}
		ctx, cancel := context.WithTimeout(context.Background(), state.SyncTimeout)
		defer cancel()
		if s.life.announced() {
			_ = s.takeBackNotice(ctx) // a start removes one that is left, too
		}
		if err := s.agent.Shutdown(ctx); err == nil {
			_ = s.machine.Wait(ctx)
		}
	}
	_ = s.agent.Close() // its only error is that the stream is closed already
	return nil
}

// goesWithRun reports whether this process removes a sandbox that has a name. A caller that is still there does so
// itself.
func (s *supervisor) goesWithRun() bool {
	return s.plan.Name != "" && s.plan.AutoRemove && (s.caller.detached.Load() || errors.Is(context.Cause(s.ctx), errCallerGone)) && !s.named.removed()
}

// removeDirectory removes the run's directory, or what a sandbox that stays
// doesn't keep of it. end is why the run is over.
func (s *supervisor) removeDirectory(end error) error {
	switch {
	case s.goesWithRun():
		err := state.RemoveNamed(s.plan.Home, s.plan.Name)
		if err != nil { // it stays like any other sandbox
			err = errors.Join(err, s.named.end(errors.Join(end, err)))
		}
		return err
	case s.plan.Name != "":
		return s.named.end(end)
	case s.plan.Keep:
		return os.Rename(s.plan.Dir, filepath.Join(s.plan.Home, state.KeptDir, s.plan.ID)) // where no sweep looks
	}
	return state.RemoveOwn(s.plan.Dir, state.RunForm)
}
