package jobkeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/joblog"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// kept runs one job to its end, and returns what is written down of it.
func kept(t *testing.T, k *Keeper, name string, run execFunc) *state.StoredJob {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if k.Dir == "" {
		k.Dir = filepath.Join(t.TempDir(), "jobs")
	}
	k.Ctx, k.Work, k.Agent, k.Failed = ctx, new(sync.WaitGroup), run, func(err error) { t.Error(err) }
	k.Self = state.ProcessID{PID: 7, Start: "8"}
	_, err := k.StartJob(ctx, name, agentclient.ExecOptions{Argv: []string{"run"}})
	must(t, err)
	k.Work.Wait()
	j, err := state.ReadJob(k.Dir, name)
	must(t, err)
	return j
}

// TestEndsAreWrittenDownAsTheyWere, with all that is known of them, in a directory that is nobody else's.
func TestEndsAreWrittenDownAsTheyWere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		st    agentclient.ExitStatus
		err   error
		state state.JobState
	}{
		"exited": {agentclient.ExitStatus{Code: 3}, nil, state.JobExited},
		"killed": {agentclient.ExitStatus{Code: 137, Signal: 9, OOMKilled: true, TimedOut: true}, nil, state.JobKilled},
		"lost":   {agentclient.ExitStatus{}, errors.New("the stream broke"), state.JobLost},
	} {
		k := &Keeper{Room: func() (int64, error) { return 0, nil }}
		j := kept(t, k, "a", func(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
			o.OnStart()
			_, _ = io.WriteString(o.Stdout, "output")
			return c.st, c.err
		})
		if j.State != c.state || j.Code != c.st.Code || j.Signal != int(c.st.Signal) || j.OOMKilled != c.st.OOMKilled || j.TimedOut != c.st.TimedOut || j.Ended == nil || (j.Reason != "") != (c.err != nil) {
			t.Errorf("%s: %+v", name, j)
		}
		if j.OutputBytes != 6 || j.LostBytes != 6 { // there is no room
			t.Errorf("%s: %d bytes of output, %d lost", name, j.OutputBytes, j.LostBytes)
		}
		if info, err := os.Stat(k.Dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: the directory: %v, %v", name, info, err)
		}
	}
}

// TestI14_JobsAreNamedAsFilesMayBe, by whoever asks for whatever of them; and those without a name get the number after the highest.
func TestI14_JobsAreNamedAsFilesMayBe(t *testing.T) {
	t.Parallel()
	done := execFunc(func(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
		o.OnStart()
		return agentclient.ExitStatus{}, nil
	})
	k := &Keeper{}
	for _, name := range []string{"job-9", "job-10", "job-2147483647", "job-x"} {
		kept(t, k, name, done)
	}
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		k.Ctx = ctx
		name, err := k.StartJob(ctx, "", agentclient.ExecOptions{Argv: []string{"run"}})
		must(t, err)
		k.Work.Wait()
		cancel()
		if name != fmt.Sprintf("job-%d", k.number) || k.number < 11 || k.number > 12 {
			t.Errorf("the next is %s", name)
		}
	}
	k.Ctx = t.Context()
	for _, name := range []string{"../a", "a/b", "-a", "A", ".", "a.b"} {
		if _, err := k.StartJob(t.Context(), name, agentclient.ExecOptions{Argv: []string{"run"}}); !errors.Is(err, state.ErrJobName) {
			t.Errorf("%q started: %v", name, err)
		}
		if err := k.RemoveJob(t.Context(), agentclient.JobID{Name: name}); !errors.Is(err, state.ErrJobName) {
			t.Errorf("%q removed: %v", name, err)
		}
	}
	for _, n := range []agentclient.Signal{0, 65} {
		if err := k.SignalJob(t.Context(), agentclient.JobID{Name: "job-9"}, n); !errors.Is(err, agentclient.ErrRefused) {
			t.Errorf("signal %d: %v", n, err)
		}
	}
	over := errors.New("the sandbox is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	k.Ctx = ctx
	if _, err := k.StartJob(t.Context(), "late", agentclient.ExecOptions{Argv: []string{"run"}}); !errors.Is(err, over) || k.Running() != 0 {
		t.Errorf("behind the sandbox's end: %v", err)
	}
}

// TestI13_MainCommandsOutliveTheirGuest, whose end counts as a failure: the next machine's supervisor goes on with their output and their
// counts, and is who runs them. Other jobs are lost, and so is one whose policy wants none again.
func TestI13_MainCommandsOutliveTheirGuest(t *testing.T) {
	t.Parallel()
	crash := execFunc(func(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
		o.OnStart()
		_, _ = io.WriteString(o.Stdout, "one\n")
		return agentclient.ExitStatus{}, fmt.Errorf("%w: it crashed", agentclient.ErrAgentDead)
	})
	onFailure := state.Restart{When: state.RestartOnFailure}
	for name, c := range map[string]struct {
		job     string
		restart state.Restart
		held    bool
	}{
		"main": {state.MainJob, onFailure, true}, "another": {"other", onFailure, false}, "never": {state.MainJob, state.Restart{}, false},
	} {
		k := &Keeper{Restart: c.restart, Hold: true}
		j := kept(t, k, c.job, crash)
		if held := k.Held(); (held != nil) != c.held || (j.State == state.JobRunning) != c.held {
			t.Errorf("%s: held %+v, %+v", name, held, j)
			continue
		}
		if !c.held {
			continue
		}
		var kinds []Event
		next := &Keeper{
			Dir: k.Dir, Ctx: t.Context(), Work: new(sync.WaitGroup), Self: state.ProcessID{PID: 9, Start: "10"}, Failed: func(err error) { t.Error(err) },
			Room: func() (int64, error) { return 0, errors.New("no room") }, Event: func(e Event) { kinds = append(kinds, e) },
			Agent: execFunc(func(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
				o.OnStart()
				now, err := state.ReadJob(k.Dir, state.MainJob)
				if err != nil || now.Supervisor.PID != 9 || now.Restarts != 1 || now.State != state.JobRunning {
					t.Errorf("while it runs again: %+v, %v", now, err)
				}
				_, _ = io.WriteString(o.Stdout, "two\n")
				return agentclient.ExitStatus{Code: 0}, nil
			}),
		}
		must(t, next.Resume(k.Held()))
		next.Work.Wait()
		out, missing, err := joblog.ReadFrom(k.Dir, state.MainJob, 0, 100)
		if string(out) != "one\ntwo\n" || missing != 0 || err != nil {
			t.Errorf("the output is %q, %d missing, %v", out, missing, err)
		}
		if j, err = state.ReadJob(k.Dir, state.MainJob); err != nil || j.State != state.JobExited || j.OutputBytes != 8 {
			t.Errorf("at its end: %+v, %v", j, err)
		}
		if len(kinds) != 3 || kinds[0].Restarts != 1 || kinds[1].Stage != agentclient.ExecStarted || kinds[2].Stage != agentclient.ExecDied {
			t.Errorf("the events are %+v", kinds)
		}
	}
}

// TestI11_ResumedCommandsKeepToTheRoom that the host's disk has, as they did in the machine before.
func TestI11_ResumedCommandsKeepToTheRoom(t *testing.T) {
	t.Parallel()
	const text = "output"
	for room, lost := range map[int64]int64{0: int64(len(text)), math.MaxInt64: 0} {
		k := &Keeper{Restart: state.Restart{When: state.RestartOnFailure}, Hold: true}
		kept(t, k, state.MainJob, func(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
			o.OnStart()
			return agentclient.ExitStatus{}, fmt.Errorf("%w: it crashed", agentclient.ErrAgentDead)
		})
		next := &Keeper{
			Dir: k.Dir, Ctx: t.Context(), Work: new(sync.WaitGroup), Failed: func(err error) { t.Error(err) }, Event: func(Event) {},
			Room: func() (int64, error) { return room, nil },
			Agent: execFunc(func(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
				o.OnStart()
				_, _ = io.WriteString(o.Stdout, text)
				return agentclient.ExitStatus{}, nil
			}),
		}
		must(t, next.Resume(k.Held()))
		next.Work.Wait()
		if j, err := state.ReadJob(k.Dir, state.MainJob); err != nil || j.LostBytes != lost {
			t.Errorf("with room for %d bytes: %+v, %v; want %d lost", room, j, err, lost)
		}
	}
}
