package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/secretproxy/ca"
)

// openControl makes the socket over which commands reach a sandbox with a name. Who comes before the guest is ready
// waits.
func (s *supervisor) openControl() (err error) {
	if s.plan.Name == "" {
		return nil
	}
	if s.dir, err = os.Open(s.plan.Dir); err == nil && !s.plan.Review {
		s.listener, err = state.ListenControl(s.plan.Dir)
	}
	return err
}

// errRemoved is the end of a sandbox whose directory somebody removed: no command finds it any longer.
var errRemoved = errors.New("the sandbox's directory was removed while it ran")

// removed reports whether the directory of a sandbox with a name was removed. What is there by its name then is another
// sandbox's.
func (s *supervisor) removed() bool {
	if s.dir == nil {
		return false
	}
	info, err := s.dir.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 0
}

// recordRun writes down what the next start has to know if this process is killed, and what there is to tell.
func (s *supervisor) recordRun(change func(*state.RunRecord)) error {
	if s.plan.Name == "" {
		return nil
	}
	s.recordMu.Lock()
	defer s.recordMu.Unlock()
	change(&s.record)
	return state.WriteJSON(s.plan.Dir, state.InfoFile, s.record)
}

// reloads is an audit.Sink that also notes whether a change of the policy file was refused, for who asks.
type reloads struct {
	audit.Sink
	s *supervisor
}

// Emit implements audit.Sink.
func (r reloads) Emit(e audit.Event) {
	if e.Kind == audit.PolicyReload && r.s.plan.Name == "" {
		_ = r.s.out.Write(state.StatusLine{Notice: e.Message}) // a caller that is gone ends the sandbox anyway
	}
	if e.Kind == audit.PolicyReload {
		_ = r.s.recordRun(func(run *state.RunRecord) { // the log has it too
			run.PolicyRefused = ""
			if e.Action == "deny" {
				run.PolicyRefused = e.Message
			}
		})
	}
	r.Sink.Emit(e)
}

// loadIdentity is what a sandbox with a name keeps from run to run: its authority, which its trust stores know, and its
// placeholders, which its files may hold.
func (s *supervisor) loadIdentity() (*ca.Authority, *state.Stored, error) {
	if s.plan.Name == "" {
		return nil, new(state.Stored), nil
	}
	path := filepath.Join(s.plan.Dir, state.CaFile)
	authority, err := ca.Load(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ca.ErrExpired) {
		if authority, err = ca.New(s.plan.Name); err == nil {
			err = authority.Save(path)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	st, err := state.ReadStored(s.plan.Dir, s.plan.Name)
	if err != nil {
		return nil, nil, err
	}
	return authority, st, nil
}

// detach makes a sandbox with a name independent of who started it.
func (s *supervisor) detach(info *state.Info) error {
	if s.plan.Name == "" {
		return nil
	}
	if s.plan.Review {
		return s.recordRun(func(r *state.RunRecord) { r.Info = info })
	}
	// Before anybody reads that it is ready: what was seen ready must not end because its caller was killed just then.
	if err := s.leaveCaller(); err != nil {
		return err
	}
	err := errors.Join(s.keepChoices(), state.UnlessGone(os.Remove(filepath.Join(s.plan.Dir, state.EndFile))))
	if err == nil {
		err = s.recordRun(func(r *state.RunRecord) { r.Info = info })
	}
	if err != nil {
		s.detached.Store(false)
	}
	return err
}

func (s *supervisor) leaveCaller() error {
	s.callerMu.Lock()
	defer s.callerMu.Unlock()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	s.detached.Store(true)
	return nil
}

// callerGone ends the sandbox, unless it lives on without its caller.
func (s *supervisor) callerGone() {
	s.callerMu.Lock()
	defer s.callerMu.Unlock()
	if !s.detached.Load() || s.plan.Attached {
		s.cancel(errCallerGone)
	}
}

// keepChoices adds to the sandbox's state what a run has chosen: placeholders, and ports for those that were to be any.
// Placeholders of secrets that a policy has no longer stay: it may have them again.
func (s *supervisor) keepChoices() error {
	return s.changeStored(func(st *state.Stored) bool {
		changed := s.keepPlaceholders(st)
		if st.NewIdentity || st.ForgetCA != "" { // the guest has done it, or would not run
			st.NewIdentity, st.ForgetCA, changed = false, "", true
		}
		if ports := s.ports.opened(); !slices.Equal(st.Ports, ports) {
			st.Ports, changed = ports, true
		}
		return changed
	})
}

func (s *supervisor) keepPlaceholders(st *state.Stored) (changed bool) {
	if s.gateway == nil {
		return false
	}
	for name, placeholder := range s.gateway.Placeholders() {
		if st.Placeholders == nil {
			st.Placeholders = map[string]string{}
		}
		changed = changed || st.Placeholders[name] != placeholder
		st.Placeholders[name] = placeholder
	}
	return changed
}

// endNamed writes down how a run ended, then takes its socket away.
func (s *supervisor) endNamed(end error) error {
	if s.removed() {
		return nil
	}
	var errs []error
	if s.detached.Load() {
		e := state.End{Time: time.Now().UTC().Truncate(time.Second)}
		if end != nil {
			e.Kind, e.Message = state.KindOf(end), end.Error()
		}
		errs = append(errs, s.keepChoices(), s.saveRan(), state.WriteJSON(s.plan.Dir, state.EndFile, e))
	}
	for _, file := range []string{state.InfoFile, state.ControlSock, state.PeerSock} {
		errs = append(errs, state.UnlessGone(os.Remove(filepath.Join(s.plan.Dir, file))))
	}
	return errors.Join(errs...)
}
