package supervisor

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/secretproxy/ca"
)

// named is what only a sandbox with a name has: its control socket, and what is written down in its directory. Without
// a name its methods do nothing or are not called.
type named struct {
	s        *supervisor
	listener *net.UnixListener
	dir      *os.File   // plan.Dir, whatever its path leads to by now
	storedMu sync.Mutex // of the sandbox's state
	recordMu sync.Mutex
	record   state.RunRecord
}

// open makes the socket over which commands reach a sandbox with a name. A command that comes before the
// guest is ready waits.
func (n *named) open() (err error) {
	if n.s.plan.Name == "" || n.dir != nil { // restart.wait has opened it
		return nil
	}
	if n.dir, err = os.Open(n.s.plan.Dir); err == nil && !n.s.plan.Review {
		n.listener, err = state.ListenControl(n.s.plan.Dir)
	}
	return err
}

// errRemoved is the end of a sandbox whose directory somebody removed: no command finds it any longer.
var errRemoved = errors.New("the sandbox's directory was removed while it ran")

// removed reports whether the directory of a sandbox with a name was removed. What is there by its name then is another
// sandbox's.
func (n *named) removed() bool {
	if n.dir == nil {
		return false
	}
	info, err := n.dir.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 0
}

// recordRun writes down what the next start has to know if this process is killed, and what there is to tell.
func (n *named) recordRun(change func(*state.RunRecord)) error {
	if n.s.plan.Name == "" {
		return nil
	}
	n.recordMu.Lock()
	defer n.recordMu.Unlock()
	change(&n.record)
	return state.WriteJSON(n.s.plan.Dir, state.InfoFile, n.record)
}

// reloads is an audit.Sink that also notes whether a change of the policy file was refused, for commands that ask.
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
		_ = r.s.named.recordRun(func(run *state.RunRecord) { // the log has it too
			run.PolicyRefused = ""
			if e.Action == "deny" {
				run.PolicyRefused = e.Message
			}
		})
	}
	if e.Kind == audit.PolicyReload && e.Action == "allow" {
		r.s.ssh.again()
	}
	r.s.access.saw(&e)
	r.Sink.Emit(e)
}

// identity is what a sandbox with a name keeps from run to run: its authority, which its trust stores know, and its
// placeholders, which its files may hold.
func (n *named) identity() (*ca.Authority, *state.Stored, error) {
	if n.s.plan.Name == "" {
		return nil, new(state.Stored), nil
	}
	path := filepath.Join(n.s.plan.Dir, state.CaFile)
	authority, err := ca.Load(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ca.ErrExpired) {
		if authority, err = ca.New(n.s.plan.Name); err == nil {
			err = authority.Save(path)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	st, err := state.ReadStored(n.s.plan.Dir, n.s.plan.Name)
	if err != nil {
		return nil, nil, err
	}
	return authority, st, nil
}

// detach makes a sandbox with a name independent of its caller.
func (n *named) detach(info *state.Info) error {
	if n.s.plan.Name == "" {
		return nil
	}
	if n.s.plan.Review {
		return n.recordRun(func(r *state.RunRecord) { r.Info = info })
	}
	// Before anybody reads that it is ready: what was seen ready must not end because its caller was killed just then.
	if err := n.s.caller.leave(); err != nil {
		return err
	}
	err := errors.Join(n.keepChoices(), state.UnlessGone(os.Remove(filepath.Join(n.s.plan.Dir, state.EndFile))))
	if err == nil {
		err = n.recordRun(func(r *state.RunRecord) { r.Info = info })
	}
	if err != nil {
		n.s.caller.detached.Store(false)
	}
	return err
}

// keepChoices adds to the sandbox's state what a run has chosen: placeholders, and ports for those that were to be any.
// Placeholders of secrets that a policy has no longer stay: it may have them again.
func (n *named) keepChoices() error {
	return n.changeStored(func(st *state.Stored) bool {
		changed := n.keepPlaceholders(st)
		if st.NewIdentity || st.ForgetCA != "" { // the guest has done it, or would not run
			st.NewIdentity, st.ForgetCA, changed = false, "", true
		}
		if ports := n.s.ports.opened(); !slices.Equal(st.Ports, ports) {
			st.Ports, changed = ports, true
		}
		return changed
	})
}

func (n *named) keepPlaceholders(st *state.Stored) (changed bool) {
	if n.s.gateway == nil {
		return false
	}
	for name, placeholder := range n.s.gateway.Placeholders() {
		if st.Placeholders == nil {
			st.Placeholders = map[string]string{}
		}
		changed = changed || st.Placeholders[name] != placeholder
		st.Placeholders[name] = placeholder
	}
	return changed
}

// writeEnd writes down why a run ended; nil is a stop.
func (n *named) writeEnd(end error) error {
	e := state.End{Time: time.Now().UTC().Truncate(time.Second)}
	if end != nil {
		e.Kind, e.Message = state.KindOf(end), end.Error()
	}
	return state.WriteJSON(n.s.plan.Dir, state.EndFile, e)
}

// end writes down how a run ended, then takes its socket away.
func (n *named) end(end error) error {
	if n.removed() {
		return nil
	}
	var errs []error
	if n.s.caller.detached.Load() {
		errs = append(errs, n.keepChoices(), n.saveRan(), n.writeEnd(end))
	}
	for _, file := range []string{state.InfoFile, state.ControlSock, state.PeerSock} {
		errs = append(errs, state.UnlessGone(os.Remove(filepath.Join(n.s.plan.Dir, file))))
	}
	return errors.Join(errs...)
}
