package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/joblog"
	"github.com/msb-project/msb/sandbox/internal/jobkeeper"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// fakeGuest runs what Argv says: "write TEXT...", "wait" for a signal, "missing" for a program that isn't there.
type fakeGuest struct{ refuse error }

func (g *fakeGuest) Exec(ctx context.Context, o ExecOptions) (ExitStatus, error) {
	if g.refuse != nil {
		return ExitStatus{}, g.refuse
	}
	if o.Argv[0] == "missing" {
		return ExitStatus{Code: 127, StartError: agentclient.NotFound, Message: "missing: not found"}, nil
	}
	o.OnStart()
	for _, text := range o.Argv[1:] {
		to := o.Stdout
		if strings.HasPrefix(text, "E") {
			to = o.Stderr
		}
		if _, err := io.WriteString(to, text); err != nil {
			return ExitStatus{}, err
		}
	}
	switch o.Argv[0] {
	case "cat":
		_, err := io.Copy(o.Stdout, o.Stdin)
		return ExitStatus{}, err
	case "drain":
		if _, err := io.Copy(io.Discard, o.Stdin); err != nil {
			return ExitStatus{}, err
		}
	case "wait":
	default:
		return ExitStatus{Code: 3}, nil
	}
	select {
	case sig := <-o.Signals:
		return ExitStatus{Code: 128 + int(sig), Signal: sig}, nil
	case <-ctx.Done():
		return ExitStatus{}, ctx.Err()
	}
}

// keeps is a running sandbox of the name web, as far as jobs go: its supervisor is in this process.
type keeps struct {
	*jobkeeper.Keeper
	home *Home
	jobs agentclient.JobServer // for sessions, in place of the Keeper
	stop context.CancelFunc
	work sync.WaitGroup
}

func newKeeper(t *testing.T) *keeps {
	t.Helper()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	k := &keeps{home: h}
	k.start(t)
	return k
}

func (k *keeps) start(t *testing.T) {
	t.Helper()
	var ctx context.Context
	ctx, k.stop = context.WithCancel(t.Context())
	k.Keeper = &jobkeeper.Keeper{
		Dir: namedPath(k.home, "web", state.JobsDir), Agent: &fakeGuest{}, Ctx: ctx, Work: &k.work, Self: state.Identify(os.Getpid()),
		Room: func() (int64, error) { return 1 << 40, nil }, Failed: func(err error) { t.Error(err) },
	}
	must(t, k.Settle(nil))
	t.Cleanup(func() {
		k.stop()
		k.work.Wait()
	})
}

// session is one with this supervisor, over the protocol.
func (k *keeps) session(t *testing.T) *Sandbox {
	t.Helper()
	agent, far, err := state.SocketPair()
	must(t, err)
	must(t, far.Close())
	client, err := agentclient.Attach(agent) // the guest's; jobs don't use it here
	must(t, err)
	l, err := state.ListenControl(namedPath(k.home, "web"))
	must(t, err)
	jobs := agentclient.JobServer(k.Keeper)
	if k.jobs != nil {
		jobs = k.jobs
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { served <- agentclient.Serve(ctx, l, client, agentclient.Services{Jobs: jobs}) }()
	conn, err := state.DialControl(namedPath(k.home, "web"))
	must(t, err)
	s := &Sandbox{name: "web", home: k.home, run: &runDir{id: "web", dir: namedPath(k.home, "web")}, over: make(chan struct{})}
	s.client, err = agentclient.Attach(conn)
	must(t, err)
	t.Cleanup(func() {
		_, _ = s.client.Close(), client.Close() // gRPC may have closed the sockets already
		cancel()
		must(t, <-served)
	})
	return s
}

func (k *keeps) run(t *testing.T, name string, argv ...string) *Job {
	t.Helper()
	got, err := k.StartJob(t.Context(), name, ExecOptions{Argv: argv})
	must(t, err)
	j, err := k.home.Job("web", got)
	must(t, err)
	return j
}

// text is all that a log says, with what is missing in brackets.
func text(t *testing.T, j *Job, o LogOptions) string {
	t.Helper()
	l, err := j.Logs(t.Context(), o)
	must(t, err)
	defer func() { _ = l.Close() }()
	var b strings.Builder
	for {
		e, err := l.Next()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		must(t, err)
		b.Write(e.Data)
		if e.Missing > 0 {
			fmt.Fprintf(&b, "[%d]", e.Missing)
		}
	}
}

func TestJobsLiveThroughEveryVerb(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	j, err := s.StartJob(t.Context(), "build", ExecOptions{Argv: []string{"write", "one\ntwo\n", "Error\n", "end"}})
	must(t, err)
	st, err := j.Wait(t.Context())
	if err != nil || st.State != JobExited || st.Code != 3 || st.Ended == nil || st.OutputBytes != 17 || strings.Join(st.Command, " ") != "write one\ntwo\n Error\n end" {
		t.Errorf("%+v, %v", st, err)
	}
	for o, want := range map[LogOptions]string{
		{}: "one\ntwo\nError\nend", {Follow: true}: "one\ntwo\nError\nend", {Tail: 2}: "Error\nend", {Tail: -1}: "", {Tail: 9, Follow: true}: "one\ntwo\nError\nend",
		{Since: st.Ended.Add(time.Hour)}: "", {Since: st.Started}: "one\ntwo\nError\nend",
	} {
		if got := text(t, j, o); got != want {
			t.Errorf("%+v: %q, want %q", o, got, want)
		}
	}
	l, err := j.Logs(t.Context(), LogOptions{})
	must(t, err)
	if b, err := io.ReadAll(l); err != nil || string(b) != "one\ntwo\nError\nend" {
		t.Errorf("read as a stream: %q, %v", b, err)
	}
	must(t, l.Close())

	waits, err := s.StartJob(t.Context(), "", ExecOptions{Argv: []string{"wait"}})
	if err != nil || waits.Name() != "job-1" {
		t.Fatalf("%v, %v", waits, err)
	}
	if err := waits.Remove(t.Context()); !errors.Is(err, ErrJobRunning) || KindOf(err) != KindSandbox || !strings.Contains(err.Error(), "msb job kill "+filepath.Base(filepath.Dir(k.Dir))+" job-1`") {
		t.Errorf("removing one that runs: %v", err)
	}
	must(t, waits.Kill(t.Context(), agentclient.SIGTERM))
	if st, err := waits.Wait(t.Context()); err != nil || st.State != JobKilled || st.Signal != 15 || st.Code != 143 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := waits.Kill(t.Context(), agentclient.SIGTERM); !errors.Is(err, ErrJobEnded) {
		t.Errorf("killing one that has ended: %v", err)
	}
	all, err := s.Jobs()
	if err != nil || len(all) != 2 || all[0].Name != "build" || all[1].Name != "job-1" {
		t.Errorf("%+v, %v", all, err)
	}
	must(t, errors.Join(j.Remove(t.Context()), waits.Remove(t.Context())))
	if _, err := s.Job("build"); !errors.Is(err, ErrNoJob) {
		t.Errorf("after it was removed: %v", err)
	}
	if left, err := os.ReadDir(k.Dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestI12_JobErrorsCrossTheSocket(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	k.run(t, "taken", "wait")
	guest := &fakeGuest{}
	k.Agent = guest
	start := func(name string, argv ...string) error {
		_, err := s.StartJob(t.Context(), name, ExecOptions{Argv: argv})
		return err
	}
	full := fmt.Errorf("%w: %w", agentclient.ErrJobFiles, syscall.ENOSPC)
	for _, c := range []struct {
		name   string
		refuse error
		want   error
	}{{"a", full, agentclient.ErrJobFiles}, {"a", full, syscall.ENOSPC}, {"taken", nil, ErrJobExists}, {"../x", nil, ErrJobName}, {"A", nil, ErrJobName}, {"a", agentclient.ErrBusy, agentclient.ErrBusy}, {"a", agentclient.ErrRefused, agentclient.ErrRefused}} {
		guest.refuse = c.refuse
		if err := start(c.name, "write"); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	guest.refuse = nil
	var not *NotStartedError
	if err := start("b", "missing"); !errors.As(err, &not) || not.Status.Code != 127 || not.Status.StartError != agentclient.NotFound || err.Error() != "missing: not found" {
		t.Errorf("%v", err)
	}
	taken, err := s.Job("taken")
	must(t, err)
	if err := taken.Kill(t.Context(), 65); !errors.Is(err, agentclient.ErrRefused) {
		t.Errorf("signal 65: %v", err)
	}
	no, err := s.Job("no")
	for _, err := range []error{err, no.Kill(t.Context(), 1), no.Remove(t.Context()), s.client.SignalJob(t.Context(), agentclient.JobID{Name: "no"}, 1), s.client.RemoveJob(t.Context(), agentclient.JobID{Name: "no"})} {
		if !errors.Is(err, ErrNoJob) || KindOf(err) != KindSandbox {
			t.Errorf("%v, want ErrNoJob", err)
		}
		if want := "msb job ls " + filepath.Base(filepath.Dir(k.Dir)) + "`"; !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := start("again", "write", "x"); err != nil { // the session goes on after all of these
		t.Error(err)
	}
	if names, err := state.ListJobs(k.Dir); err != nil || strings.Join(names, " ") != "again taken" {
		t.Errorf("%v, %v; a job that did not start leaves nothing", names, err)
	}
}

// TestI11_TheNumberOfJobsIsBounded, those that have ended included: each keeps its output.
func TestI11_TheNumberOfJobsIsBounded(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	for range MaxJobs {
		k.run(t, "", "write", "x\n")
	}
	if _, err := k.StartJob(t.Context(), "", ExecOptions{Argv: []string{"write"}}); !errors.Is(err, ErrJobLimit) {
		t.Errorf("%v, want ErrJobLimit", err)
	}
	j, err := k.home.Job("web", "job-1")
	must(t, err)
	_, err = j.Wait(t.Context())
	must(t, err)
	must(t, k.RemoveJob(t.Context(), agentclient.JobID{Name: "job-1"}))
	if name := k.run(t, "", "write").Name(); name != fmt.Sprint("job-", MaxJobs+1) {
		t.Errorf("%s; a name is not chosen again", name)
	}
}

// TestI13_JobsAreLostWithSupervisors, and its output is there. The twin is the same job with its supervisor.
func TestI13_JobsAreLostWithSupervisors(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	j := k.run(t, "server", "wait", "listening\n")
	if st, err := j.Status(); err != nil || st.State != JobRunning {
		t.Fatalf("%+v, %v", st, err)
	}
	l, err := j.Logs(t.Context(), LogOptions{Follow: true})
	must(t, err)
	if e, err := l.Next(); err != nil || string(e.Data) != "listening\n" { // it was written before the kill
		t.Fatalf("%q, %v", e.Data, err)
	}
	must(t, l.Close())
	file, err := state.ReadJob(k.Dir, "server")
	must(t, err)
	file.Supervisor = state.ProcessID{PID: 1 << 30, Start: "1"} // who is no more
	must(t, file.Update(k.Dir))
	st, err := j.Wait(t.Context())
	if !errors.Is(err, ErrJobLost) || st.State != JobLost || KindOf(err) != KindSandbox {
		t.Errorf("%+v, %v", st, err)
	}
	if all, err := k.home.Jobs("web"); err != nil || len(all) != 1 || all[0].State != JobLost {
		t.Errorf("listed as %+v, %v", all, err)
	}
	if got := text(t, j, LogOptions{Follow: true}); got != "listening\n" {
		t.Errorf("its output: %q", got)
	}
	if err := j.Kill(t.Context(), 9); !errors.Is(err, ErrJobEnded) {
		t.Errorf("kill: %v", err)
	}
	must(t, (&jobkeeper.Keeper{Dir: k.Dir}).Settle(nil)) // the next start
	if file, err := state.ReadJob(k.Dir, "server"); err != nil || file.State != JobLost || file.Reason == "" {
		t.Errorf("%+v, %v", file, err)
	}
	must(t, j.Remove(t.Context()))
	k.Failed = func(error) {} // the first supervisor, which is not killed here, finds its job gone
	must(t, k.home.Remove(t.Context(), "web"))
}

func TestStoppedSandboxesKeepTheirJobs(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	j := k.run(t, "server", "wait", "listening\n")
	k.stop()
	k.work.Wait()
	if st, err := j.Status(); err != nil || st.State != JobLost || st.Ended == nil || st.Reason != "the sandbox ended" {
		t.Errorf("%+v, %v", st, err)
	}
	k.start(t)
	if got := text(t, j, LogOptions{}); got != "listening\n" {
		t.Errorf("at the next start: %q", got)
	}
	k.stop()
	must(t, k.home.Remove(t.Context(), "web")) // the jobs go with the sandbox
}

// TestFollowersGetLinesAsTheyCome and one that stops reading holds nobody up.
func TestFollowersGetLinesAsTheyCome(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	more := make(chan string)
	k.Agent = execFunc(func(_ context.Context, o ExecOptions) (ExitStatus, error) {
		o.OnStart()
		for line := range more {
			_, _ = io.WriteString(o.Stdout, line)
		}
		return ExitStatus{}, nil
	})
	j := k.run(t, "", "x")
	l, err := j.Logs(t.Context(), LogOptions{Follow: true, Tail: -1})
	must(t, err)
	defer func() { _ = l.Close() }()
	idle, err := j.Logs(t.Context(), LogOptions{Follow: true}) // never read
	must(t, err)
	defer func() { _ = idle.Close() }()
	for i := range 3 {
		more <- fmt.Sprintln("line", i)
		if e, err := l.Next(); err != nil || string(e.Data) != fmt.Sprintln("line", i) {
			t.Fatalf("%q, %v", e.Data, err)
		}
	}
	more <- strings.Repeat("x", 2*joblog.MaxBytes)
	more <- "end"
	close(more)
	st, err := j.Wait(t.Context())
	must(t, err)
	if got := text(t, j, LogOptions{Tail: 1}); got != "end" && !strings.HasSuffix(got, "xend") {
		t.Errorf("%d bytes at the end", len(got))
	}
	if all := text(t, j, LogOptions{}); !strings.HasPrefix(all, "[") || int64(len(all)) > joblog.MaxBytes {
		t.Errorf("%d bytes of %d, and nothing said of the rest", len(all), st.OutputBytes)
	}
}

// TestI12_JobNamesAreNotConfused: who waits for a job that is removed gets an error, and neither the exit
// code of the next one nor a wait for it. The twin is a wait for the next one.
func TestI12_JobNamesAreNotConfused(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := k.session(t)
	k.run(t, "build", "write", "old\n")
	ofSession, err := s.Job("build")
	must(t, err)
	ofHome, err := k.home.Job("web", "build")
	must(t, err)
	_, err = ofHome.Wait(t.Context())
	must(t, err)
	must(t, ofHome.Remove(t.Context()))
	next, err := s.StartJob(t.Context(), "build", ExecOptions{Argv: []string{"wait", "new\n"}})
	must(t, err)
	for _, old := range []*Job{ofSession, ofHome} {
		_, waited := old.Wait(t.Context())
		_, read := old.Logs(t.Context(), LogOptions{})
		for what, err := range map[string]error{"wait": waited, "logs": read, "kill": old.Kill(t.Context(), 9), "rm": old.Remove(t.Context())} {
			if !errors.Is(err, ErrNoJob) || KindOf(err) != KindSandbox {
				t.Errorf("%s: %v, want ErrNoJob", what, err)
			}
		}
	}
	must(t, next.Kill(t.Context(), 15))
	if st, err := next.Wait(t.Context()); err != nil || st.Signal != 15 {
		t.Errorf("the next one: %+v, %v", st, err)
	}
	for _, old := range []*Job{ofSession, ofHome} {
		if st, err := old.Wait(t.Context()); !errors.Is(err, ErrNoJob) {
			t.Errorf("the one before, when the next one has ended: %+v, %v", st, err)
		}
	}
}

// TestI12_JobEndsAreWrittenAgain: until it is, the job seems to run. The first fault is a file that
// can't be opened, the second one a directory that can't be written to either.
func TestI12_JobEndsAreWrittenAgain(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.Again = time.Millisecond
	failed := make(chan error, 1)
	k.Failed = func(err error) { failed <- err }
	end := make(chan struct{})
	k.Agent = execFunc(func(_ context.Context, o ExecOptions) (ExitStatus, error) {
		o.OnStart()
		<-end
		return ExitStatus{Code: 3}, nil
	})
	ended := func(j *Job) {
		t.Helper()
		if st, err := j.Wait(t.Context()); err != nil || st.State != JobExited || st.Code != 3 {
			t.Errorf("%+v, %v; want exit code 3", st, err)
		}
	}
	j := k.run(t, "a", "x")
	must(t, os.Remove(state.JobPath(k.Dir, "a")))
	must(t, os.Symlink("loop", filepath.Join(k.Dir, "loop")))
	must(t, os.Symlink("loop", state.JobPath(k.Dir, "a")))
	end <- struct{}{}
	for { // a link that leads nowhere is replaced
		if st, err := j.Status(); err == nil && st.State == JobExited {
			break
		}
		select {
		case err := <-failed:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	ended(j)
	j = k.run(t, "b", "x")
	moved := k.Dir + ".moved"
	must(t, os.Rename(k.Dir, moved))
	must(t, os.WriteFile(k.Dir, nil, 0o600))
	end <- struct{}{}
	if err := <-failed; !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("%v, want ENOTDIR", err)
	}
	must(t, os.Remove(k.Dir))
	must(t, os.Rename(moved, k.Dir))
	ended(j)
}

// TestI11_TailsTakeBoundedMemory: 8 MiB of empty ones took 700 MB, as often as a program asked.
func TestI11_TailsTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	const lines = 1 << 20
	j := k.run(t, "a", "write", strings.Repeat("\n", lines)+"last\n")
	_, err := j.Wait(t.Context())
	must(t, err)
	for tail, first := range map[int]string{lines + 1: "\n", math.MaxInt: "\n", 1: "last\n"} {
		l, err := j.Logs(t.Context(), LogOptions{Tail: tail})
		must(t, err)
		if len(l.queue) > 0 {
			t.Errorf("-n %d: %d lines are in memory", tail, len(l.queue))
		}
		if e, err := l.Next(); err != nil || string(e.Data) != first {
			t.Errorf("-n %d: %q, %v; want %q", tail, e.Data, err, first)
		}
		must(t, l.Close())
	}
}

// TestI12_AFullDiskStopsNoJob: what could not be kept is counted, and the end is written down.
func TestI12_AFullDiskStopsNoJob(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.Room = func() (int64, error) { return 0, nil }
	j := k.run(t, "a", "write", "lost\n")
	st, err := j.Wait(t.Context())
	if err != nil || st.State != JobExited || st.LostBytes != 5 {
		t.Errorf("%+v, %v", st, err)
	}
	if got := text(t, j, LogOptions{}); got != "[5]" {
		t.Errorf("%q, want what is missing", got)
	}
}

// TestI11_AJobsFileHasOneSize: its end needs no room on a full disk.
func TestI11_AJobsFileHasOneSize(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	long := strings.Repeat("\x00é\"", 1<<16)
	for i, argv := range [][]string{{"write"}, {"write", long}, append([]string{"write"}, strings.Split(long, "\"")...)} {
		j := k.run(t, fmt.Sprint("j", i), argv...)
		info, err := os.Stat(state.JobPath(k.Dir, j.Name()))
		must(t, err)
		st, err := j.Wait(t.Context())
		must(t, err)
		after, err := os.Stat(state.JobPath(k.Dir, j.Name()))
		if err != nil || info.Size() != state.JobFileBytes || after.Size() != state.JobFileBytes || st.Command[0] != "write" {
			t.Errorf("%d: %v and %v, %v", i, info.Size(), after, err)
		}
	}
}

func TestI12_DamagedJobsCanBeRemoved(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	j := k.run(t, "a", "write", "x\n")
	_, err := j.Wait(t.Context())
	must(t, err)
	must(t, os.WriteFile(filepath.Join(k.Dir, "a.0.log"), []byte(strings.Repeat("\xff", 100)), 0o600))
	l, err := j.Logs(t.Context(), LogOptions{})
	must(t, err)
	if _, err := l.Next(); !errors.Is(err, ErrState) || !errors.Is(err, joblog.ErrDamaged) {
		t.Errorf("its log: %v", err)
	}
	must(t, l.Close())
	must(t, os.WriteFile(state.JobPath(k.Dir, "a"), []byte("{"), 0o600))
	if _, err := j.Status(); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "a.json") {
		t.Errorf("its state: %v", err)
	}
	if all, err := k.home.Jobs("web"); err != nil || len(all) != 1 || all[0].State != JobDamaged || all[0].Reason == "" {
		t.Errorf("listed as %+v, %v", all, err)
	}
	must(t, k.RemoveJob(t.Context(), agentclient.JobID{Name: "a"}))
}

type execFunc func(context.Context, ExecOptions) (ExitStatus, error)

func (f execFunc) Exec(ctx context.Context, o ExecOptions) (ExitStatus, error) { return f(ctx, o) }
