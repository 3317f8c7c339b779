package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// Replan makes the plan of a sandbox with a name again, as its next start would: with its policy file as it is now, and
// refusing what a start refuses. This process has the sandbox's lock.
type Replan func(ctx context.Context, old *state.Plan) (*state.Plan, error)

// restart runs the main command of a sandbox with a name again when its guest has ended.
type restart struct {
	s      *supervisor
	replan Replan
	runs   bool // the main command of a run before
}

// holds reports whether a main command may outlive the guest: nobody but this process looks after the sandbox.
func (r *restart) holds() bool {
	return r.s.plan.Name != "" && !r.s.plan.Attached && !r.s.plan.Review && !r.s.plan.AutoRemove
}

// next becomes the supervisor of the sandbox's next machine, if the main command's restart policy wants that: this process
// is executed again, with nothing of the secrets in its memory, and keeps its identity and the sandbox's lock. It returns
// if the sandbox is over. end is why the machine is, and what went wrong since.
func (r *restart) next(end, cleaned error) error {
	main := r.s.jobs.Held()
	if main == nil {
		return nil
	}
	if end == nil || cleaned != nil || r.s.named.removed() || r.replan == nil {
		return r.lose(&main.Job, "the sandbox ended")
	}
	if over := r.s.life.over(r.s.now()); over != nil {
		return errors.Join(over, r.lose(&main.Job, over.Error()))
	}
	text, err := json.Marshal(r.again(main))
	if err == nil {
		// A command that connects meanwhile waits for the next machine. If nothing can be written down, nothing can be
		// started either.
		err = errors.Join(r.s.named.keepChoices(), r.s.named.saveRan(), r.s.named.writeEnd(end), r.s.named.recordRun(func(run *state.RunRecord) { run.Info, run.VMM = nil, state.ProcessID{} }))
	}
	if err == nil && r.s.signals.leave() {
		return r.lose(&main.Job, "the sandbox ended")
	}
	if err == nil {
		_ = r.s.out.Write(state.StatusLine{Failed: &state.Failed{Kind: state.KindOf(end), Message: end.Error()}}) // most callers have gone
		fmt.Fprintf(os.Stderr, "%s; the main command is run again in a new machine\n", end)
		err = executeAgain(text)
	}
	return errors.Join(err, r.lose(&main.Job, state.ShownReason(err)))
}

// again is the plan of the next machine.
func (r *restart) again(main *state.MainRun) *state.Plan {
	plan := *r.s.plan
	plan.Again = &state.Again{Main: *main}
	if r.s.gateway != nil {
		plan.Again.EgressUsed = r.s.gateway.Stats().EgressUsed
	}
	return &plan
}

// lose writes down that a main command is not run again.
func (r *restart) lose(j *state.StoredJob, reason string) error {
	now := time.Now().UTC()
	j.State, j.Reason, j.Ended = state.JobLost, reason, &now
	return j.Update(filepath.Join(r.s.plan.Dir, state.JobsDir))
}

// wait is the pause before the next machine, in which the sandbox can be stopped.
func (r *restart) wait() error {
	if r.s.plan.Again == nil {
		return nil
	}
	for _, file := range []string{state.ControlSock, state.PeerSock} {
		if err := state.UnlessGone(os.Remove(filepath.Join(r.s.plan.Dir, file))); err != nil {
			return err
		}
	}
	if err := r.s.named.open(); err != nil {
		return err
	}
	pause := time.NewTimer(r.s.plan.Again.Main.Restarts.Pause)
	defer pause.Stop()
	select {
	case <-r.s.ctx.Done():
		return context.Cause(r.s.ctx)
	case <-pause.C:
	}
	plan, err := r.replan(r.s.ctx, r.s.plan)
	if err != nil {
		return err
	}
	plan.Again = r.s.plan.Again
	r.s.plan = plan
	return nil
}

// egressUsed is what the runs before took of the policy's egress_bytes.
func (r *restart) egressUsed() int64 {
	if r.s.plan.Again == nil {
		return 0
	}
	return r.s.plan.Again.EgressUsed
}

// run runs the main command in the new machine.
func (r *restart) run() error {
	if r.s.plan.Again == nil {
		return nil
	}
	err := r.s.jobs.Resume(&r.s.plan.Again.Main)
	r.runs = err == nil
	return err
}

// giveUp records that the main command is lost if the new machine never came as
// far as running it.
func (r *restart) giveUp(end error) error {
	if r.s.plan.Again == nil || r.runs {
		return nil
	}
	reason := "the sandbox ended"
	if end != nil {
		reason = state.ShownReason(end)
	}
	return r.lose(&r.s.plan.Again.Main.Job, reason)
}
