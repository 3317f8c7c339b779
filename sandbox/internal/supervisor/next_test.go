package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/jobkeeper"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// crashing is an agent whose guest ends under each command.
type crashing struct{}

func (crashing) Exec(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
	o.OnStart()
	return agentclient.ExitStatus{}, fmt.Errorf("%w: it crashed", agentclient.ErrAgentDead)
}

// TestI13_CrashesAreWrittenDownBeforeTheNextMachine: why the guest ended, how much of its lifetime it had, and that no machine has the
// disk. A signal that came meanwhile ends the sandbox, whose command is lost.
func TestI13_CrashesAreWrittenDownBeforeTheNextMachine(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.Restart, p.Lifetime = state.Restart{When: state.RestartAlways}, time.Hour
	st, err := state.ReadStored(p.Dir, "web")
	must(t, err)
	st.Spec = p.Spec
	must(t, state.WriteJSON(p.Dir, state.StoredFile, st))
	s := newSupervisor(p, nil, nil)
	s.ctx, s.cancel = context.WithCancelCause(t.Context())
	began := time.Unix(1_700_000_000, 0)
	s.life.begin(began, &p.Spec, 0, false)
	s.now = func() time.Time { return began.Add(10 * time.Minute) }
	s.restart.replan = func(_ context.Context, old *state.Plan) (*state.Plan, error) { return old, nil }
	s.signals = signals{ch: make(chan os.Signal, 1), done: make(chan struct{}), came: true} // else this process would become the next one
	close(s.signals.done)
	must(t, s.named.open())
	defer func() { _ = s.named.listener.Close(); _ = s.named.dir.Close() }()
	own := state.Identify(os.Getpid())
	must(t, s.named.recordRun(func(r *state.RunRecord) { r.Supervisor, r.VMM, r.Info = own, own, &state.Info{ID: "web"} }))
	jobs := filepath.Join(p.Dir, state.JobsDir)
	s.jobs = &jobkeeper.Keeper{Dir: jobs, Agent: crashing{}, Ctx: s.ctx, Work: &s.work, Self: own, Restart: p.Restart, Hold: s.restart.holds(), Failed: func(err error) { t.Error(err) }}
	_, err = s.jobs.StartJob(t.Context(), state.MainJob, agentclient.ExecOptions{Argv: []string{"serve"}})
	must(t, err)
	s.work.Wait()
	if j, err := state.ReadJob(jobs, state.MainJob); err != nil || j.State != state.JobRunning {
		t.Errorf("until the next machine the job is %+v, %v", j, err)
	}
	why := fmt.Errorf("%w: it crashed", agentclient.ErrAgentDead)
	if err := s.restart.next(why, nil); err != nil {
		t.Error(err)
	}
	var end state.End
	must(t, state.ReadJSON(p.Dir, state.EndFile, &end))
	if end.Kind != state.KindAgent || end.Message != why.Error() || end.Time.Location() != time.UTC {
		t.Errorf("the end is %+v", end)
	}
	var r state.RunRecord
	must(t, state.ReadJSON(p.Dir, state.InfoFile, &r))
	if r.Info != nil || r.VMM != (state.ProcessID{}) || r.Supervisor != own {
		t.Errorf("the record is %+v", r)
	}
	if st, err = state.ReadStored(p.Dir, "web"); err != nil || st.Ran != 10*time.Minute {
		t.Errorf("it ran for %s, %v", st.Ran, err)
	}
	if j, err := state.ReadJob(jobs, state.MainJob); err != nil || j.State != state.JobLost {
		t.Errorf("behind a signal the job is %+v, %v", j, err)
	}
}

// TestI13_StopsInThePauseEndSandboxes: nothing of the next machine is planned, and other sandboxes' calls find no socket of the last one.
func TestI13_StopsInThePauseEndSandboxes(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	main := aMainRun(t, p)
	main.Restarts.Pause = time.Hour
	p.Again = &state.Again{Main: main}
	must(t, os.WriteFile(filepath.Join(p.Dir, state.PeerSock), nil, 0o600))
	s := newSupervisor(p, nil, nil)
	s.ctx, s.cancel = context.WithCancelCause(t.Context())
	s.restart.replan = func(context.Context, *state.Plan) (*state.Plan, error) {
		t.Error("the next machine is planned")
		return nil, errors.ErrUnsupported
	}
	s.cancel(errCallerGone)
	if err := s.restart.wait(); !errors.Is(err, errCallerGone) {
		t.Errorf("%v", err)
	}
	defer func() { _ = s.named.listener.Close(); _ = s.named.dir.Close() }()
	if there(t, filepath.Join(p.Dir, state.PeerSock)) || !there(t, filepath.Join(p.Dir, state.ControlSock)) {
		t.Error("the sockets of the last machine are there, or its own is not")
	}
}
