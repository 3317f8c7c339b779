package jobkeeper

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// execFunc is a guest.
type execFunc func(ctx context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error)

func (f execFunc) Exec(ctx context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
	return f(ctx, o)
}

// TestI11_DeafGuestsHoldUpNoKill. The twin is the first signal, which the queue takes.
func TestI11_DeafGuestsHoldUpNoKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Nobody reads the signals.
		k := &Keeper{Dir: "/home/sandboxes/web/jobs", live: map[string]liveJob{"server": {signals: make(chan agentclient.Signal, 1), halt: func() {}}}}
		if err := k.SignalJob(t.Context(), agentclient.JobID{Name: "server"}, agentclient.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := k.SignalJob(t.Context(), agentclient.JobID{Name: "server"}, agentclient.SIGKILL); !errors.Is(err, agentclient.ErrBusy) || !strings.Contains(err.Error(), "msb stop web") {
			t.Errorf("%v, want ErrBusy and the remedy", err)
		}
	})
}

// TestSettleLeavesWhatIsResumed as it is; the twin is lost.
func TestSettleLeavesWhatIsResumed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{state.MainJob, "other"} {
		must(t, (&state.StoredJob{JobStatus: state.JobStatus{Name: name, State: state.JobRunning}}).Create(dir))
	}
	main, err := state.ReadJob(dir, state.MainJob)
	must(t, err)
	must(t, (&Keeper{Dir: dir}).Settle(&state.MainRun{Job: *main}))
	for name, want := range map[string]state.JobState{state.MainJob: state.JobRunning, "other": state.JobLost} {
		if j, err := state.ReadJob(dir, name); err != nil || j.State != want {
			t.Errorf("%s: %+v, %v; want %s", name, j, err, want)
		}
	}
}

// TestTerminateWaitsForEnds: a machine that ends before its commands have, once they got SIGTERM, loses what they write
// then.
func TestTerminateWaitsForEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		end := make(chan struct{})
		k := &Keeper{Dir: dir, Ctx: t.Context(), Work: &work, Failed: func(err error) { t.Error(err) }, Agent: execFunc(func(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
			o.OnStart()
			if s := <-o.Signals; s != agentclient.SIGTERM {
				t.Errorf("it got %v", s)
			}
			<-end
			return agentclient.ExitStatus{}, nil
		})}
		_, err := k.StartJob(t.Context(), "a", agentclient.ExecOptions{Argv: []string{"x"}})
		must(t, err)
		over := false
		go func() {
			k.Terminate(t.Context())
			over = true
		}()
		synctest.Wait()
		if over {
			t.Error("it waits for nobody")
		}
		close(end)
		work.Wait()
		time.Sleep(2 * terminatePause)
		synctest.Wait()
		if !over {
			t.Error("it waits for ever")
		}
	})
}

// TestRemovedJobsEndsAreDropped: the end of one that could not be written down, and that was removed meanwhile, is not that
// of the next job of its name.
func TestRemovedJobsEndsAreDropped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var work sync.WaitGroup
		end, failed := make(chan struct{}), make(chan error, 9)
		k := &Keeper{Dir: dir, Ctx: ctx, Work: &work, Failed: func(err error) { failed <- err }, Again: time.Second, Agent: execFunc(func(ctx context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
			o.OnStart()
			select {
			case <-end:
			case <-ctx.Done():
			}
			return agentclient.ExitStatus{Code: 3}, ctx.Err()
		})}
		_, err := k.StartJob(ctx, "a", agentclient.ExecOptions{Argv: []string{"x"}})
		must(t, err)
		must(t, os.Remove(state.JobPath(dir, "a")))
		must(t, os.Mkdir(state.JobPath(dir, "a"), 0o700)) // so that nothing can be written there
		end <- struct{}{}
		if err := <-failed; err == nil {
			t.Error("it was written")
		}
		must(t, k.RemoveJob(ctx, agentclient.JobID{Name: "a"}))
		_, err = k.StartJob(ctx, "a", agentclient.ExecOptions{Argv: []string{"y"}})
		must(t, err)
		time.Sleep(2 * time.Second) // until the end is tried again
		synctest.Wait()
		if j, err := state.ReadJob(dir, "a"); err != nil || j.State != state.JobRunning || j.Command[0] != "y" {
			t.Errorf("%+v, %v; want the one that runs", j, err)
		}
		stop()
		work.Wait()
	})
}

// TestPausesEndBeforeTheNextRun: a command whose pause is over is run again, unless somebody ended it or the sandbox ends
// meanwhile, whichever is seen first.
func TestPausesEndBeforeTheNextRun(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ ended, halted, over, again bool }{
		"over": {false, false, true, true}, "halted": {false, true, false, false}, "the sandbox ends": {true, false, false, false},
		"halted as it is over": {false, true, true, false}, "the sandbox ends as it is over": {true, false, true, false}, "all at once": {true, true, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			halted := make(chan struct{})
			k := &Keeper{Ctx: ctx}
			if tt.ended {
				cancel()
			}
			if tt.halted {
				close(halted)
			}
			d := time.Hour
			if tt.over {
				d = 0
			}
			if got := k.pause(&run{job: &state.StoredJob{JobStatus: state.JobStatus{Name: state.MainJob}}, halted: halted}, d); got != tt.again {
				t.Errorf("%s: run again: %t, want %t", name, got, tt.again)
			}
			if !k.live[state.MainJob].pausing {
				t.Errorf("%s: meanwhile it is not known to pause", name)
			}
		})
	}
}

// TestEndsAreTriedOnceMoreAsTheSandboxEnds: the disk may take them again by then, and nobody tries it later.
func TestEndsAreTriedOnceMoreAsTheSandboxEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var work sync.WaitGroup
		end, failed := make(chan struct{}), make(chan error, 9)
		k := &Keeper{Dir: dir, Ctx: ctx, Work: &work, Failed: func(err error) { failed <- err }, Again: time.Hour, Agent: execFunc(func(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
			o.OnStart()
			<-end
			return agentclient.ExitStatus{Code: 3}, nil
		})}
		_, err := k.StartJob(ctx, "a", agentclient.ExecOptions{Argv: []string{"x"}})
		must(t, err)
		path := state.JobPath(dir, "a")
		before, err := os.ReadFile(path)
		must(t, err)
		must(t, os.Remove(path))
		must(t, os.Mkdir(path, 0o700)) // so that nothing can be written there
		close(end)
		if err := <-failed; err == nil {
			t.Error("it was written")
		}
		must(t, os.Remove(path))
		must(t, os.WriteFile(path, before, 0o600))
		stop()
		work.Wait()
		if j, err := state.ReadJob(dir, "a"); err != nil || j.State != state.JobExited || j.Code != 3 {
			t.Errorf("%+v, %v; want one that exited with 3", j, err)
		}
	})
}
