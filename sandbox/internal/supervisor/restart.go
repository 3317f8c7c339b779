package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Replan makes the plan of a sandbox with a name again, as its next start would: with its policy file as it is now, and
// refusing what a start refuses. This process has the sandbox's lock.
type Replan func(ctx context.Context, old *state.Plan) (*state.Plan, error)

// guestGone tells the main command's keeper that the guest ended by itself, and returns why it did.
func (s *supervisor) guestGone(why error) error {
	if errors.Is(why, agentclient.ErrAgentDead) {
		s.cancel(why)
	} else {
		s.cancel(fmt.Errorf("%w: %w", agentclient.ErrAgentDead, why))
	}
	return why
}

// holds reports whether a main command may outlive the guest: nobody but this process looks after the sandbox.
func (s *supervisor) holds() bool {
	return s.plan.Name != "" && !s.plan.Attached && !s.plan.Review && !s.plan.AutoRemove
}

// goOn becomes the supervisor of the sandbox's next machine, if the main command's restart policy wants that: this process
// is executed again, with nothing of the secrets in its memory, and keeps its identity and the sandbox's lock. It returns
// if the sandbox is over. end is why the machine is, and what went wrong since.
func (s *supervisor) goOn(end, cleaned error) error {
	main := s.jobs.Held()
	if main == nil {
		return nil
	}
	if end == nil || cleaned != nil || s.named.removed() || s.replan == nil {
		return s.lose(&main.Job, "the sandbox ended")
	}
	plan := *s.plan
	plan.Again = &state.Again{Main: *main}
	if s.gateway != nil {
		plan.Again.EgressUsed = s.gateway.Stats().EgressUsed
	}
	text, err := json.Marshal(&plan)
	if err == nil {
		// Who comes meanwhile waits for the next machine. Where nothing can be written down, nothing can be started either.
		err = errors.Join(s.named.keepChoices(), s.named.saveRan(), s.named.writeEnd(end), s.named.recordRun(func(r *state.RunRecord) { r.Info, r.VMM = nil, state.ProcessID{} }))
	}
	if err == nil && s.signals.leave() {
		return s.lose(&main.Job, "the sandbox ended")
	}
	if err == nil {
		_ = s.out.Write(state.StatusLine{Failed: &state.Failed{Kind: state.KindOf(end), Message: end.Error()}}) // most callers have gone
		fmt.Fprintf(os.Stderr, "%s; the main command is run again in a new machine\n", end)
		err = executeAgain(text)
	}
	return errors.Join(err, s.lose(&main.Job, state.ShownReason(err)))
}

// lose writes down that a main command is not run again.
func (s *supervisor) lose(j *state.StoredJob, reason string) error {
	now := time.Now().UTC()
	j.State, j.Reason, j.Ended = state.JobLost, reason, &now
	return j.Update(filepath.Join(s.plan.Dir, state.JobsDir))
}

// waitAgain is the pause before the next machine, in which the sandbox can be stopped.
func (s *supervisor) waitAgain() error {
	if s.plan.Again == nil {
		return nil
	}
	for _, file := range []string{state.ControlSock, state.PeerSock} {
		if err := state.UnlessGone(os.Remove(filepath.Join(s.plan.Dir, file))); err != nil {
			return err
		}
	}
	if err := s.named.open(); err != nil {
		return err
	}
	pause := time.NewTimer(s.plan.Again.Main.Restarts.Pause)
	defer pause.Stop()
	select {
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-pause.C:
	}
	plan, err := s.replan(s.ctx, s.plan)
	if err != nil {
		return err
	}
	plan.Again = s.plan.Again
	s.plan = plan
	return nil
}

// egressUsed is what the runs before took of the policy's egress_bytes.
func (s *supervisor) egressUsed() int64 {
	if s.plan.Again == nil {
		return 0
	}
	return s.plan.Again.EgressUsed
}

// runAgain runs the main command in the new machine.
func (s *supervisor) runAgain() error {
	if s.plan.Again == nil {
		return nil
	}
	err := s.jobs.Resume(&s.plan.Again.Main)
	s.again = err == nil
	return err
}

// loseAgain is for a machine that did not come up again.
func (s *supervisor) loseAgain(end error) error {
	if s.plan.Again == nil || s.again {
		return nil
	}
	reason := "the sandbox ended"
	if end != nil {
		reason = state.ShownReason(end)
	}
	return s.lose(&s.plan.Again.Main.Job, reason)
}
