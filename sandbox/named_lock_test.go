package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI13_FailedStartsSpareTheNext: by the time its supervisor has gone, another command may have started
// the sandbox. Without its socket that run could be neither used nor stopped.
func TestI13_FailedStartsSpareTheNext(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if err := aNamed(t, h, "web"); err != nil {
		t.Fatal(err)
	}
	next, err := lockNamed(h, "web")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = next.lock.Close() }()
	l, err := state.ListenControl(next.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := state.WriteJSON(next.dir, state.InfoFile, state.RunRecord{Started: time.Now()}); err != nil {
		t.Fatal(err)
	}
	failed := &Sandbox{name: "web", home: h, run: &runDir{id: "web", dir: next.dir}}
	if err := failed.dropRun(); err != nil {
		t.Error(err)
	}
	if s, err := h.Inspect("web"); err != nil || !s.Running || s.Started == nil {
		t.Errorf("%+v, %v; want the one that runs as it was", s, err)
	}
}

// TestI13_InterruptedStartsEndReadySandboxes: it no longer ends with its caller then. Not parallel: from its
// fork to its exec the child holds other tests' locks.
func TestI13_InterruptedStartsEndReadySandboxes(t *testing.T) {
	h := newHome(t)
	if err := aNamed(t, h, "web"); err != nil {
		t.Fatal(err)
	}
	ours, theirs, err := state.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = theirs.Close() }()
	s := &Sandbox{name: "web", home: h, run: &runDir{id: "web", dir: namedPath(h, "web")}, over: make(chan struct{}), cmd: exec.Command("sleep", "60")}
	if s.client, err = agentclient.Attach(ours); err != nil {
		t.Fatal(err)
	}
	if s.pipe, err = os.Open(os.DevNull); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.abandon(); err != nil {
		t.Errorf("it was not asked to end: %v", err)
	}
}

// TestI13_RemovedLocksAreMadeAgain, and one of a sandbox that was removed meanwhile is none.
func TestI13_RemovedLocksAreMadeAgain(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if err := aNamed(t, h, "web"); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Open(namedPath(h, "web", state.LockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := os.Remove(filepath.Join(namedPath(h, "web"), state.LockFile)); err != nil {
		t.Fatal(err)
	}
	if isAt(lock, namedPath(h, "web", state.LockFile)) {
		t.Error("a lock file that is gone is taken for the sandbox's")
	}
	if err := h.Remove(t.Context(), "web"); err != nil {
		t.Errorf("without its lock file it can't be removed: %v", err)
	}
	if err := h.Remove(t.Context(), "web"); !errors.Is(err, ErrNoSandbox) {
		t.Errorf("removing it again: %v", err)
	}
}

// TestI13_LocksBelongToTheCurrentSandbox: sandboxes of one name come and go, and whoever gets the lock has the current
// one's: a lock file that was opened before its sandbox was removed excludes nobody.
func TestI13_LocksBelongToTheCurrentSandbox(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := namedPath(h, "web")
	var all sync.WaitGroup
	var stop atomic.Bool
	for range 3 {
		all.Go(func() {
			for !stop.Load() {
				run, err := lockNamed(h, "web")
				if err != nil {
					runtime.Gosched()
					continue
				}
				if !isAt(run.lock, filepath.Join(dir, state.LockFile)) {
					t.Error("the lock is that of a sandbox that was removed")
					stop.Store(true)
				}
				gone := state.HiddenPath(h.dir)
				if err := os.Rename(dir, gone); err != nil && !stop.Load() {
					t.Error(err)
				}
				_ = os.RemoveAll(gone) // another one may be about to make a lock in it
				_ = run.lock.Close()   // nothing was written to it
			}
		})
	}
	for range 200 {
		next := state.HiddenPath(h.dir)
		must(t, os.Mkdir(next, 0o700))
		must(t, os.WriteFile(filepath.Join(next, state.LockFile), nil, 0o600))
		for os.Rename(next, dir) != nil && !stop.Load() { // until the one before is removed
			runtime.Gosched()
		}
	}
	stop.Store(true)
	all.Wait()
}

// TestI13_DiscardMeansItsOwnSandbox: a failed run -d removed by the name, and what somebody else had made under it
// by then was ended and removed. The twin is the sandbox itself.
func TestI13_DiscardMeansItsOwnSandbox(t *testing.T) {
	t.Parallel()
	for _, another := range []bool{false, true} {
		h := newHome(t)
		must(t, aNamed(t, h, "web"))
		made, err := os.Open(namedPath(h, "web", state.LockFile))
		must(t, err)
		s := &Sandbox{name: "web", home: h, run: &runDir{id: "web", dir: namedPath(h, "web")}, over: make(chan struct{}), made: made}
		ours, theirs, err := state.SocketPair()
		must(t, err)
		must(t, theirs.Close())
		s.client, err = agentclient.Attach(ours)
		must(t, err)
		if another {
			must(t, h.Remove(t.Context(), "web"))
			must(t, aNamed(t, h, "web"))
			l, err := state.ListenControl(s.run.dir) // this process: a signal to it would be refused with an error
			must(t, err)
			defer func() { _ = l.Close() }()
		}
		if err := s.Discard(t.Context()); err != nil {
			t.Errorf("another has the name %t: %v", another, err)
		}
		if is := there(t, namedPath(h, "web")); is != another {
			t.Errorf("another has the name %t, and one is there: %t", another, is)
		}
	}
}

// TestI13_TemporarySandboxesAreSwept once their supervisor was killed, and not while it, or its machine, lives.
func TestI13_TemporarySandboxesAreSwept(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	old := time.Now().Add(-2 * newRunGrace)
	for _, name := range []string{"unstarted", "starting"} { // whoever made them was killed before there was a machine, or is about to start one
		cfg := Config{Home: h.Dir(), Name: name, Disk: 64 << 20, AutoRemove: true}
		must(t, Create(t.Context(), cfg))
	}
	must(t, os.Chtimes(namedPath(h, "unstarted"), old, old))
	record := func(name string, r state.RunRecord) {
		must(t, aNamed(t, h, name))
		must(t, state.WriteJSON(namedPath(h, name), state.InfoFile, r))
	}
	record("killed", state.RunRecord{AutoRemove: true, VMM: state.ProcessID{PID: os.Getpid(), Start: "0"}}) // whose number another has
	record("stays", state.RunRecord{})
	must(t, aNamed(t, h, "unused")) // made to be started later
	must(t, os.Chtimes(namedPath(h, "unused"), old, old))
	record("machine", state.RunRecord{AutoRemove: true, VMM: state.Identify(os.Getpid())})
	record("runs", state.RunRecord{AutoRemove: true})
	must(t, os.Chtimes(namedPath(h, "stays"), old, old))
	run, err := lockNamed(h, "runs")
	must(t, err)
	names := func() (names []string) {
		again, err := OpenHome(h.Dir())
		must(t, err)
		all, err := again.List()
		must(t, err)
		for i := range all {
			names = append(names, all[i].Name)
		}
		return names
	}
	if got, want := names(), []string{"machine", "runs", "starting", "stays", "unused"}; !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
	must(t, run.lock.Close())
	if got, want := names(), []string{"machine", "starting", "stays", "unused"}; !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
}

// TestI13_SweepsReachEverySandbox: each command looks at few of many sandboxes, and some command at each.
func TestI13_SweepsReachEverySandbox(t *testing.T) {
	t.Parallel()
	const many = 10_000
	looks := make([]int, many)
	for turn := range sweepTurns {
		sum := 0
		for i := range looks {
			if sweepsNow(i, turn) {
				looks[i]++
				sum++
			}
		}
		if sum > sweepAll+many/sweepTurns+1 {
			t.Errorf("a command looks at %d of %d", sum, many)
		}
	}
	for i, n := range looks {
		if n == 0 || i < sweepAll && n != sweepTurns {
			t.Errorf("%d commands look at the sandbox %d", n, i)
		}
	}
}

// TestWaitOutlivesTheSandbox: one of Config.AutoRemove goes at the end that is waited for.
func TestWaitOutlivesTheSandbox(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	dir := namedPath(h, "web", state.JobsDir)
	must(t, os.Mkdir(dir, 0o700))
	stored := state.StoredJob{JobStatus: JobStatus{Name: MainJob, State: JobRunning, Started: time.Now().UTC()}, Supervisor: state.Identify(os.Getpid())}
	must(t, stored.Create(dir))
	j, err := h.Job("web", MainJob)
	must(t, err)
	held, err := os.Open(state.JobPath(dir, MainJob))
	must(t, err)
	defer func() { _ = held.Close() }()
	stored.State, stored.Code = JobExited, 7
	must(t, stored.Update(dir))
	must(t, h.Remove(t.Context(), "web"))
	if st, err := j.current(held); err != nil || st.Code != 7 {
		t.Errorf("%+v, %v; want code 7", st, err)
	}
	if _, err := j.current(nil); !errors.Is(err, ErrNoJob) {
		t.Errorf("without the file: %v, want ErrNoJob", err)
	}
}

// TestI13_KilledRunsAreCleared before anything else is done with the sandbox: a later command would take what is left for
// that of a run.
func TestI13_KilledRunsAreCleared(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	l, err := state.ListenPeer(namedPath(h, "web"))
	must(t, err)
	must(t, l.Close())
	l, err = state.ListenControl(namedPath(h, "web"))
	must(t, err)
	must(t, l.Close())
	must(t, state.WriteJSON(namedPath(h, "web"), state.InfoFile, state.RunRecord{Started: time.Now(), Info: &Info{ID: "killed"}}))
	must(t, h.Rename(t.Context(), "web", "site"))
	for _, name := range []string{state.ControlSock, state.PeerSock, state.InfoFile} {
		if there(t, namedPath(h, "site", name)) {
			t.Errorf("%s is left", name)
		}
	}
}

// TestI13_DisksOfUnrecordedMachinesAreWaitedFor: a supervisor that was killed before it wrote down its machine left one that
// can still write to the disk.
func TestI13_DisksOfUnrecordedMachinesAreWaitedFor(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	h.gone = 20 * time.Millisecond
	path := namedPath(h, "web", state.UpperDisk)
	onDisk(t, h, "web", "text")
	_, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Name: "s"})
	must(t, err)
	disk, err := state.LockDisk(path, 0)
	must(t, err)
	verbs := []struct {
		name string
		do   func() error
	}{
		{"reset", func() error { return h.Reset(t.Context(), "web") }},
		{"restore", func() error { return h.Snapshots().Restore(t.Context(), "s", "web") }},
		{"snapshot", func() error { _, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{}); return err }},
		{"clone", func() error { return h.Clone(t.Context(), "web", "other", CloneOptions{}) }},
		{"rename", func() error { return h.Rename(t.Context(), "web", "web2") }},
		{"remove", func() error { return h.Remove(t.Context(), "web2") }},
	}
	for _, v := range verbs {
		if v.name == "remove" {
			v.do = func() error { return h.Remove(t.Context(), "web") }
		}
		if err := v.do(); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "still has its disk") {
			t.Errorf("%s while a machine has the disk: %v", v.name, err)
		}
	}
	must(t, disk.Close())
	for _, v := range verbs {
		if err := v.do(); err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
	}
}

// TestI13_RefusedCallsFreeTheSandbox: the next command doesn't find it in use.
func TestI13_RefusedCallsFreeTheSandbox(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	must(t, aNamed(t, h, "other"))
	_, err := h.Snapshots().Create(t.Context(), "other", SnapshotOptions{Name: "s"})
	must(t, err)
	st, err := loadStored(h, "web")
	must(t, err)
	st.Placeholders, st.PolicyFile = map[string]string{"TOKEN": "placeholder"}, filepath.Join(t.TempDir(), "nosuch.toml")
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
	for what, c := range map[string]struct {
		do   func() error
		want error
	}{
		"stop":         {func() error { return h.Stop(t.Context(), "web") }, ErrNotRunning},
		"start":        {func() error { _, err := StartNamed(t.Context(), "web", StartOptions{Home: h.Dir()}); return err }, ErrPolicyMissing},
		"rename":       {func() error { return h.Rename(t.Context(), "web", "other") }, ErrExists},
		"set a secret": {func() error { return h.SetEnv(t.Context(), "web", "TOKEN=real") }, ErrConfig},
		"a memory": {func() error {
			_, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Memory: true})
			return err
		}, ErrNotSaved},
		"other disk":    {func() error { return h.Snapshots().Restore(t.Context(), "s", "web") }, ErrSnapshotOf},
		"later sandbox": {func() error { return h.Only(time.Unix(1, 0)).Remove(t.Context(), "web") }, ErrNoSandbox},
	} {
		if err := c.do(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		run, err := lockNamed(h, "web")
		if err != nil {
			t.Fatalf("behind %s: %v", what, err)
		}
		must(t, run.lock.Close())
	}
	if env, err := h.Env("web"); err != nil || len(env) > 0 {
		t.Errorf("it has %q, %v", env, err)
	}
}
