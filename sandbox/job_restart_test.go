package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// pauses is a clock whose pauses last until the test ends them. What runs between them takes no time.
type pauses struct {
	asked chan time.Duration
	over  chan time.Time
}

func newPauses() *pauses { return &pauses{make(chan time.Duration), make(chan time.Time)} }

func (p *pauses) Now() time.Time { return time.Unix(0, 0) }
func (p *pauses) After(d time.Duration) <-chan time.Time {
	p.asked <- d
	return p.over
}

// exits runs a command whose runs end with these codes, and gives each run's number and input as output.
func exits(codes ...int) execFunc {
	var mu sync.Mutex
	n := 0
	return func(_ context.Context, o ExecOptions) (ExitStatus, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		if o.OnStart != nil {
			o.OnStart()
		}
		_, _ = fmt.Fprintf(o.Stdout, "run %d\n", n)
		code := codes[min(n, len(codes))-1]
		if code == 127 {
			return ExitStatus{Code: 127, StartError: agentclient.NotFound, Message: "gone: not found"}, nil
		}
		return ExitStatus{Code: code}, nil
	}
}

// TestMainCommandsAreRestarted as the policy says; other jobs, and those of a sandbox without one, are not.
func TestMainCommandsAreRestarted(t *testing.T) {
	t.Parallel()
	const first = 100 * time.Millisecond
	for _, c := range []struct {
		job, policy string
		codes       []int
		pauses      []time.Duration
		code        int
		reason      string
	}{
		{MainJob, "no", []int{1}, nil, 1, ""},
		{"other", "always", []int{1}, nil, 1, ""},
		{MainJob, "on-failure:2", []int{1, 2, 3, 4}, []time.Duration{first, 2 * first}, 3, ""},
		{MainJob, "on-failure", []int{1, 1, 1, 0}, []time.Duration{first, 2 * first, 4 * first}, 0, ""},
		{MainJob, "always", []int{0, 127}, []time.Duration{first}, 127, "gone: not found"},
	} {
		k := newKeeper(t)
		clock := newPauses()
		var err error
		k.Restart, err = ParseRestart(c.policy)
		must(t, err)
		k.Clock, k.Agent = clock, exits(c.codes...)
		j := k.run(t, c.job, "x")
		for i, want := range c.pauses {
			if got := <-clock.asked; got != want {
				t.Errorf("%s, pause %d: %s, want %s", c.policy, i, got, want)
			}
			if st, err := j.Status(); err != nil || st.State != JobRunning || st.Restarts != i {
				t.Errorf("%s, in pause %d: %+v, %v", c.policy, i, st, err)
			}
			clock.over <- time.Time{}
		}
		st, err := j.Wait(t.Context())
		if err != nil || st.State != JobExited || st.Code != c.code || st.Restarts != len(c.pauses) || st.Reason != c.reason {
			t.Errorf("%s of %s: %+v, %v", c.policy, c.job, st, err)
		}
		want := ""
		for i := range len(c.pauses) + 1 {
			want += fmt.Sprintf("run %d\n", i+1)
		}
		if got := text(t, j, LogOptions{}); got != want {
			t.Errorf("%s of %s: its output is %q", c.policy, c.job, got)
		}
		shown, err := k.home.Inspect("web")
		if wantCount := st.Restarts; err != nil || shown.RestartCount != wantCount {
			t.Errorf("inspect says %d restarts, %v", shown.RestartCount, err)
		}
	}
}

// TestSignalsEndRestarts: one that is meant to end the command, while it runs or in a pause, has it not run again. The
// twin is a signal that is not.
func TestSignalsEndRestarts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		signal  agentclient.Signal
		pausing bool
		ends    bool
	}{{agentclient.SIGKILL, false, true}, {agentclient.SIGTERM, false, true}, {agentclient.SIGHUP, false, false}, {agentclient.SIGTERM, true, true}, {agentclient.SIGHUP, true, false}} {
		k := newKeeper(t)
		clock := newPauses()
		k.Restart, k.Clock = Restart{When: state.RestartAlways}, clock
		argv := []string{"wait"}
		if c.pausing {
			argv = []string{"write"}
		}
		k.Agent = unstarted{}
		j := k.run(t, MainJob, argv...)
		if c.pausing {
			<-clock.asked
		}
		main := agentclient.JobID{Name: MainJob}
		err := k.SignalJob(t.Context(), main, c.signal)
		if want := c.pausing && !c.ends; errors.Is(err, ErrJobEnded) != want || err != nil && !want {
			t.Errorf("signal %d, pausing %v: %v", c.signal, c.pausing, err)
		}
		if !c.ends {
			if !c.pausing {
				<-clock.asked
			}
			must(t, k.SignalJob(t.Context(), main, agentclient.SIGKILL))
		}
		if st, err := j.Wait(t.Context()); err != nil || st.Restarts != 0 || st.State == JobRunning {
			t.Errorf("signal %d, pausing %v: %+v, %v", c.signal, c.pausing, st, err)
		}
	}
}

// unstarted is fakeGuest for runs that nobody waits for the start of.
type unstarted struct{}

func (unstarted) Exec(ctx context.Context, o ExecOptions) (ExitStatus, error) {
	if o.OnStart == nil {
		o.OnStart = func() {}
	}
	return (&fakeGuest{}).Exec(ctx, o)
}

// TestEachRunHasItsInput: what was for the run before, its end of file too, is not for the next one.
func TestEachRunHasItsInput(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	clock := newPauses()
	k.Restart, k.Clock, k.Agent = Restart{When: state.RestartAlways}, clock, unstarted{}
	name, err := k.StartJob(t.Context(), MainJob, ExecOptions{Argv: []string{"cat"}, JobInput: true})
	must(t, err)
	j, err := k.home.Job("web", name)
	must(t, err)
	main := agentclient.JobID{Name: MainJob}
	for _, line := range []string{"one\n", "two\n"} {
		_, err := k.WriteJob(t.Context(), main, []byte(line), true)
		must(t, err)
		<-clock.asked
		if _, err := k.WriteJob(t.Context(), main, []byte("lost"), false); err == nil {
			t.Error("a pause takes input")
		}
		clock.over <- time.Time{}
		for { // until the next run is there to write to
			if _, err := k.WriteJob(t.Context(), main, nil, false); err == nil {
				break
			}
		}
	}
	must(t, k.SignalJob(t.Context(), main, agentclient.SIGKILL)) // which cat passes over
	_, err = k.WriteJob(t.Context(), main, nil, true)
	must(t, err)
	_, err = j.Wait(t.Context())
	must(t, err)
	if got := text(t, j, LogOptions{}); got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
}

// TestStopEndsRestarts, also in a pause: the command's last end is what it has.
func TestStopEndsRestarts(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	clock := newPauses()
	k.Restart, k.Clock, k.Agent = Restart{When: state.RestartAlways}, clock, exits(5)
	j := k.run(t, MainJob, "x")
	<-clock.asked
	k.stop()
	k.work.Wait()
	if st, err := j.Status(); err != nil || st.State != JobExited || st.Code != 5 {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestRestartNeedsASandboxThatStays, and stays with it.
func TestRestartNeedsASandboxThatStays(t *testing.T) {
	t.Parallel()
	always := Restart{When: state.RestartAlways}
	for _, c := range []struct {
		cfg  Config
		good bool
	}{
		{Config{Name: "web", Restart: always}, true},
		{Config{Name: "web", Restart: Restart{When: state.RestartNo}, AutoRemove: true}, true},
		{Config{Name: "web", Restart: always, AutoRemove: true}, false},
		{Config{Restart: always}, false},
		{Config{Name: "web", Restart: Restart{When: "sometimes"}}, false},
		{Config{Name: "web", Restart: Restart{When: state.RestartAlways, Most: 1}}, false},
	} {
		if err := c.cfg.fill(); (err == nil) != c.good || err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c.cfg.Restart, err)
		}
	}
	cfg := Config{Name: "web", Restart: always, Disk: 1 << 30}
	must(t, cfg.fill())
	h := newHome(t)
	lock, err := makeNamed(h, newStored("web", &cfg, &image.Image{Digest: "sha256:0"}, &Admission{}))
	must(t, err)
	must(t, lock.Close())
	if st, err := h.Inspect("web"); err != nil || st.Restart != "always" {
		t.Errorf("%+v, %v", st, err)
	}
	if all, err := h.List(); err != nil || !slices.ContainsFunc(all, func(s Status) bool { return s.Restart == "always" }) {
		t.Errorf("%+v, %v", all, err)
	}
}
