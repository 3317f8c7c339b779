package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/jobkeeper"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// atPause is a context of a call that waits: do runs in the call's first pause.
type atPause struct {
	context.Context
	do   func()
	once sync.Once
}

func (c *atPause) Done() <-chan struct{} {
	c.once.Do(c.do)
	return c.Context.Done()
}

// pausing is a context under which do runs at the first pause. It ends long before the test does.
func pausing(t *testing.T, do func()) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	t.Cleanup(cancel)
	return &atPause{Context: ctx, do: do}
}

// end has a job that waits end by a signal.
func (k *keeps) end(t *testing.T, name string) {
	t.Helper()
	j, err := k.home.Job("web", name)
	must(t, err)
	must(t, k.SignalJob(t.Context(), agentclient.JobID{Name: name}, agentclient.SIGTERM))
	_, err = j.Wait(t.Context())
	must(t, err)
}

// TestI12_EndsOutliveTheirJobs: a sandbox of AutoRemove is removed with its main job, whose exit code is for those who wait.
// A job that is removed while it runs has none.
func TestI12_EndsOutliveTheirJobs(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	j := k.run(t, "ends", "wait")
	st, err := j.Wait(pausing(t, func() {
		k.end(t, "ends")
		must(t, k.RemoveJob(t.Context(), agentclient.JobID{Name: "ends"}))
	}))
	if err != nil || st.State != JobKilled || st.Code != 143 {
		t.Errorf("removed when it had ended: %+v, %v", st, err)
	}
	k.Failed = func(error) {} // the keeper can't write the end of the next one
	j = k.run(t, "runs", "wait")
	st, err = j.Wait(pausing(t, func() { must(t, os.Remove(state.JobPath(k.Dir, "runs"))) }))
	if !errors.Is(err, ErrNoJob) {
		t.Errorf("removed while it ran: %+v, %v", st, err)
	}
}

// TestFollowersSeeRemovedJobsEnd: the log of a job that is removed meanwhile ends, and its last line comes.
func TestFollowersSeeRemovedJobsEnd(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	j := k.run(t, "a", "wait", "one\n", "no newline")
	eventuallyText(t, j, "one\nno newline")
	l, err := j.Logs(pausing(t, func() {
		k.end(t, "a")
		must(t, k.RemoveJob(t.Context(), agentclient.JobID{Name: "a"}))
	}), LogOptions{Follow: true})
	must(t, err)
	if all, err := io.ReadAll(l); err != nil || string(all) != "one\nno newline" {
		t.Errorf("%q, %v", all, err)
	}
	must(t, l.Close())
}

// removesAtOnce removes a job before its start is answered.
type removesAtOnce struct{ *jobkeeper.Keeper }

func (r removesAtOnce) StartJob(ctx context.Context, name string, o ExecOptions) (string, error) {
	name, err := r.Keeper.StartJob(ctx, name, o)
	for err == nil {
		if err := r.RemoveJob(ctx, agentclient.JobID{Name: name}); !errors.Is(err, ErrJobRunning) {
			return name, err
		}
	}
	return name, err
}

// TestJobsRemovedAtOnceWereStarted: that such a job is not there any more is no error of its start.
func TestJobsRemovedAtOnceWereStarted(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.jobs = removesAtOnce{k.Keeper}
	j, err := k.session(t).StartJob(t.Context(), "a", ExecOptions{Argv: []string{"write"}})
	if err != nil || j.Name() != "a" {
		t.Fatalf("%+v, %v", j, err)
	}
	if _, err := j.Status(); !errors.Is(err, ErrNoJob) {
		t.Errorf("its state: %v", err)
	}
}

// remakes replaces a job by another one of its name, which has ended if the flag is set, just before it does what it is
// asked for.
type remakes struct {
	*jobkeeper.Keeper
	t     *testing.T
	k     *keeps
	ended bool
}

func (r *remakes) again(id agentclient.JobID) {
	if st, err := state.ReadJob(r.k.Dir, id.Name); err == nil && st.Current().State == JobRunning {
		r.k.end(r.t, id.Name)
	}
	must(r.t, r.Keeper.RemoveJob(r.t.Context(), agentclient.JobID{Name: id.Name}))
	_, err := r.StartJob(r.t.Context(), id.Name, ExecOptions{Argv: []string{"wait"}, JobInput: true, TTY: true})
	must(r.t, err)
	if r.ended {
		r.k.end(r.t, id.Name)
	}
}

func (r *remakes) SignalJob(ctx context.Context, id agentclient.JobID, s agentclient.Signal) error {
	r.again(id)
	return r.Keeper.SignalJob(ctx, id, s)
}

func (r *remakes) WriteJob(ctx context.Context, id agentclient.JobID, p []byte, eof bool) (int, error) {
	r.again(id)
	return r.Keeper.WriteJob(ctx, id, p, eof)
}

func (r *remakes) ResizeJob(ctx context.Context, id agentclient.JobID, s agentclient.Size) error {
	r.again(id)
	return r.Keeper.ResizeJob(ctx, id, s)
}

func (r *remakes) RemoveJob(ctx context.Context, id agentclient.JobID) error {
	r.again(id)
	return r.Keeper.RemoveJob(ctx, id)
}

// TestI13_VerbsReachNoLaterJob: each verb means the job of its handle, also where another one takes its name at the last
// moment.
func TestI13_VerbsReachNoLaterJob(t *testing.T) {
	t.Parallel()
	for what, call := range map[string]func(*Job) error{
		"kill":   func(j *Job) error { return j.Kill(t.Context(), agentclient.SIGTERM) },
		"write":  func(j *Job) error { _, err := j.Write(t.Context(), nil, true); return err },
		"resize": func(j *Job) error { return j.Resize(t.Context(), agentclient.Size{Rows: 1, Cols: 1}) },
		"rm":     func(j *Job) error { return j.Remove(t.Context()) },
	} {
		k := newKeeper(t)
		k.jobs = &remakes{Keeper: k.Keeper, t: t, k: k, ended: what == "rm"}
		k.run(t, "a", "wait")
		j, err := k.session(t).Job("a")
		must(t, err)
		if err := call(j); !errors.Is(err, ErrNoJob) {
			t.Errorf("%s: %v, want ErrNoJob", what, err)
		}
		if st, err := state.ReadJob(k.Dir, "a"); err != nil || (st.State == JobRunning) != (what != "rm") {
			t.Errorf("%s: the later job is %+v, %v", what, st, err)
		}
	}
}

// TestI13_StoppedSandboxesLoseNoLaterJob: a job of a sandbox that is stopped is removed under the sandbox's lock, and only if
// it still is the one that was meant. A damaged one is removed, whichever it is.
func TestI13_StoppedSandboxesLoseNoLaterJob(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	j := k.run(t, "a", "write", "old\n")
	_, err := j.Wait(t.Context())
	must(t, err)
	lock, err := lockNamed(k.home, "web")
	must(t, err)
	err = j.Remove(pausing(t, func() { // which waits for the lock
		must(t, k.RemoveJob(t.Context(), agentclient.JobID{Name: "a"}))
		next := k.run(t, "a", "write", "new\n")
		_, err := next.Wait(t.Context())
		must(t, err)
		must(t, lock.lock.Close())
	}))
	if !errors.Is(err, ErrNoJob) {
		t.Errorf("removing the one before: %v", err)
	}
	next, err := k.home.Job("web", "a")
	must(t, err)
	if got := text(t, next, LogOptions{}); got != "new\n" {
		t.Errorf("the later one says %q", got)
	}
	must(t, os.WriteFile(state.JobPath(k.Dir, "a"), []byte("{"), 0o600))
	damaged, err := k.home.Job("web", "a")
	if !errors.Is(err, ErrState) {
		t.Fatalf("a damaged one: %v", err)
	}
	if st, err := damaged.Wait(t.Context()); !errors.Is(err, ErrState) {
		t.Errorf("waiting for a damaged one: %+v, %v", st, err)
	}
	for _, verb := range []error{damaged.Kill(t.Context(), 9), damaged.Resize(t.Context(), agentclient.Size{})} {
		if !errors.Is(verb, ErrJobEnded) {
			t.Errorf("a verb of a damaged one: %v", verb)
		}
	}
	must(t, damaged.Remove(t.Context()))
	if left, err := os.ReadDir(k.Dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	run, err := lockNamed(k.home, "web") // nobody holds it any longer
	must(t, err)
	must(t, run.lock.Close())
}

// TestI14_JobNamesLeadNowhereElse: the name of a job of another sandbox's, as a path, is no name.
func TestI14_JobNamesLeadNowhereElse(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	j := k.run(t, "a", "write", "x")
	_, err := j.Wait(t.Context())
	must(t, err)
	for _, name := range []string{"", "../jobs/a", "./a", "A", strings.Repeat("a", state.MaxNameLen+1)} {
		_, ofHome := k.home.Job("web", name)
		_, ofSession := s.Job(name)
		for _, err := range []error{ofHome, ofSession} {
			if !errors.Is(err, ErrJobName) || KindOf(err) != KindSandbox {
				t.Errorf("%q: %v, want ErrJobName", name, err)
			}
		}
	}
}

// TestJobsAreListedByStart, whatever their names are.
func TestJobsAreListedByStart(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	var want []string
	for _, name := range []string{"c", "a", "d", "b"} {
		j := k.run(t, name, "write", "x")
		_, err := j.Wait(t.Context())
		must(t, err)
		want = append(want, name)
	}
	all, err := k.home.Jobs("web")
	must(t, err)
	var got []string
	for _, j := range all {
		got = append(got, j.Name)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%v, want %v", got, want)
	}
}
