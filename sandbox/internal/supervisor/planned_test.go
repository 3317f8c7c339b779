package supervisor

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestMachinesAreWhatThePlanSays: copies of saved machines where the plan and the disks allow it, in the caller's group where it accounts
// for containers; and the guest is told what its root is.
func TestMachinesAreWhatThePlanSays(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	volume := state.VolumePath(home, "data")
	must(t, os.MkdirAll(volume, 0o700))
	for _, file := range []string{state.LockFile, state.VolumeDisk} {
		must(t, os.WriteFile(filepath.Join(volume, file), nil, 0o600))
	}
	for name, c := range map[string]struct {
		change func(*state.Plan)
		warm   bool
		group  bool
		root   func(*agentpb.Root) bool
	}{
		"nothing": {func(*state.Plan) {}, true, false, func(r *agentpb.Root) bool {
			return !r.GetReadOnly() && len(r.GetMakeDirs()) == 0 && len(r.GetTmpfs()) == 0
		}},
		"cold":       {func(p *state.Plan) { p.Cold = true }, false, false, nil},
		"a volume":   {func(p *state.Plan) { p.Volumes = []state.Volume{{Name: "data", Guest: "/data"}} }, false, false, nil},
		"containers": {func(p *state.Plan) { p.Containers = true }, true, true, nil},
		"read-only": {func(p *state.Plan) {
			p.ReadOnly, p.Children, p.Image.WorkingDir, p.Tmpfs = true, true, "/srv/app", []state.Tmpfs{{Path: "/tmp", Size: 1 << 20}}
		}, true, false, func(r *agentpb.Root) bool {
			return r.GetReadOnly() && slices.Equal(r.GetMakeDirs(), []string{agentpb.ChildDir, "/srv/app"}) && len(r.GetTmpfs()) == 1 && r.GetTmpfs()[0].GetPath() == "/tmp" && r.GetTmpfs()[0].GetSizeBytes() == 1<<20
		}},
		"without a directory to work in": {func(p *state.Plan) { p.ReadOnly, p.Image.WorkingDir = true, "app" }, true, false, func(r *agentpb.Root) bool { return len(r.GetMakeDirs()) == 0 }},
	} {
		p := newPlan(t, home, "")
		c.change(p)
		g := &guestVM{}
		s, info := superviseFake(t, g, p)
		if info == nil {
			t.Fatal(name, <-s.ended)
		}
		if g.spec.Warm != c.warm || g.spec.CallersGroup != c.group {
			t.Errorf("%s: a copy: %t, the caller's group: %t", name, g.spec.Warm, g.spec.CallersGroup)
		}
		if c.root != nil && !c.root(g.greeting.GetRoot()) {
			t.Errorf("%s: the root is %v", name, g.greeting.GetRoot())
		}
		must(t, closeFiles(g.spec.Held))
		s.cancel(errCallerGone)
		must(t, <-s.ended)
	}
	dirs := rootOf(&state.Plan{Spec: state.Spec{ReadOnly: true, Directories: []policies.Directory{{Guest: "/work"}}}}).MakeDirs
	if !slices.Equal(dirs, []string{"/work"}) {
		t.Errorf("a read-only root has %q made for a directory", dirs)
	}
}

// TestI13_MachinesHoldTheirDisk from before they start: the next run of the sandbox waits for it, also when this one is killed before it has
// written down which machine it is.
func TestI13_MachinesHoldTheirDisk(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.UpperDisk, p.AutoRemove = filepath.Join(p.Dir, state.UpperDisk), true
	must(t, os.WriteFile(p.UpperDisk, nil, 0o600))
	g := &guestVM{}
	s, info := superviseFake(t, g, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	if _, err := state.LockDisk(p.UpperDisk, 0); !errors.Is(err, state.ErrRunning) {
		t.Errorf("another machine: %v", err)
	}
	must(t, closeFiles(g.spec.Held))
	lock, err := state.LockDisk(p.UpperDisk, 0)
	must(t, err)
	_ = lock.Close()
	var r state.RunRecord
	must(t, state.ReadJSON(p.Dir, state.InfoFile, &r))
	if own := state.Identify(os.Getpid()); r.Supervisor != own || r.VMM != own || !r.AutoRemove || r.Info == nil || r.Info.ID != "web" {
		t.Errorf("the record is %+v", r)
	}
	s.cancel(errCallerGone)
	must(t, <-s.ended)
}

// TestCopiesForgetWhatTheyWere: the guest hears what its disk or its machine was before, and what it has done is not asked again.
func TestCopiesForgetWhatTheyWere(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "web"} {
		p := newPlan(t, t.TempDir(), name)
		p.ForgetCA = "of the plan"
		if name != "" {
			st, err := state.ReadStored(p.Dir, name)
			must(t, err)
			st.NewIdentity, st.ForgetCA = true, "of the state"
			must(t, state.WriteJSON(p.Dir, state.StoredFile, st))
		}
		g := &guestVM{copied: true}
		s, info := superviseFake(t, g, p)
		if info == nil {
			t.Fatal(<-s.ended)
		}
		want := map[string]string{"": "of the plan", "web": "of the state"}[name]
		if r := g.greeting; string(r.GetTrust().GetForgetPem()) != want || r.GetNewIdentity() != (name != "") || !r.GetRestored() || !info.Restored {
			t.Errorf("%q: the guest is told %v, the caller %+v", name, r, info)
		}
		if name != "" {
			if st, err := state.ReadStored(p.Dir, name); err != nil || st.NewIdentity || st.ForgetCA != "" {
				t.Errorf("the next start is told it again: %+v, %v", st, err)
			}
		}
		s.cancel(errCallerGone)
		must(t, <-s.ended)
	}
}

// TestI8_SecretsAreReadBehindTheHiding of this process's memory, which comes behind the machine's start.
func TestI8_SecretsAreReadBehindTheHiding(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "")
	read := filepath.Join(t.TempDir(), "read")
	p.NoNet, p.Policy = false, "version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n[secrets.TOKEN]\nfrom = \"command:touch "+read+"\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"
	cannot := errors.New("it can't be hidden")
	g := &guestVM{}
	g.hide = func() error {
		if g.spec.CPUs == 0 {
			t.Error("it is hidden before the machine has started")
		}
		return cannot
	}
	s, _ := superviseFake(t, g, p)
	if err := <-s.ended; !errors.Is(err, cannot) || there(t, read) {
		t.Errorf("it ended with %v; the secret was read: %t", err, there(t, read))
	}
}

// TestI15_SecretsAreReadWhereTheyWereApproved, and not where their path leads by now. The contrast was approved where it is.
func TestI15_SecretsAreReadWhereTheyWereApproved(t *testing.T) {
	t.Parallel()
	for _, moved := range []bool{false, true} {
		p := newPlan(t, t.TempDir(), "")
		p.NoNet, p.Policy = false, oneHost(t)
		parsed, err := policies.Parse("p.toml", []byte(p.Policy), nil)
		must(t, err)
		held := parsed.Secrets[0].From.Value
		if moved {
			held += "-that-was-approved"
		}
		p.Holds = grants.Holds{Secrets: map[string]*policies.Hold{"TOKEN": {Path: held}}}
		s, info := superviseFake(t, &guestVM{}, p)
		if (info == nil) != moved {
			t.Errorf("moved %t: ready %+v", moved, info)
		}
		s.cancel(errCallerGone)
		if err := <-s.ended; moved && !errors.Is(err, state.ErrSecretValue) || !moved && err != nil {
			t.Errorf("moved %t: it ended with %v", moved, err)
		}
	}
}

// TestI1_CallsAreRecordedAndCounted: a client's command has its lines in the audit log, and is a use while it runs. A paused guest is asked
// nothing.
func TestI1_CallsAreRecordedAndCounted(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.Audit = filepath.Join(t.TempDir(), "audit.jsonl")
	s, info := superviseFake(t, &guestVM{did: func(string) {}}, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	conn, err := state.DialControl(p.Dir)
	must(t, err)
	client, err := agentclient.Attach(conn)
	must(t, err)
	defer func() { _ = client.Close() }()
	eventually(t, "the calls before are over", func() bool { return s.life.calls.Load() == 0 })
	signals, started, ended := make(chan agentclient.Signal, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := client.Exec(t.Context(), agentclient.ExecOptions{Argv: []string{"run"}, Signals: signals, OnStart: func() { close(started) }})
		ended <- err
	}()
	<-started
	if s.life.calls.Load() == 0 {
		t.Error("no call is under way, while one is")
	}
	signals <- agentclient.SIGTERM
	must(t, <-ended)
	eventually(t, "the call is over", func() bool { return s.life.calls.Load() == 0 })
	name, err := client.StartJob(t.Context(), "", agentclient.ExecOptions{Argv: []string{"job"}})
	must(t, err)
	j, err := state.ReadJob(filepath.Join(p.Dir, state.JobsDir), name)
	must(t, err)
	if j.Supervisor != state.Identify(os.Getpid()) {
		t.Errorf("the job is of %+v", j.Supervisor)
	}
	must(t, s.pause.set(true))
	if _, err := client.Exec(t.Context(), agentclient.ExecOptions{Argv: []string{"paused"}}); !errors.Is(err, agentclient.ErrPaused) {
		t.Errorf("a command in a pause: %v", err)
	}
	must(t, s.pause.set(false))
	s.cancel(errCallerGone)
	must(t, <-s.ended)
	text, err := os.ReadFile(p.Audit)
	must(t, err)
	for _, part := range []string{
		`"exec.create","exec":1,"program":"run"`, `"exec.start","exec":1,"program":"run"`, `"exec.die","exec":1,"program":"run","exit_code":143`, `"exec.start","job":"` + name + `","program":"job"`,
		`"` + string(audit.SandboxPause) + `"`, `"` + string(audit.SandboxResume) + `"`,
	} {
		if !bytes.Contains(text, []byte(part)) {
			t.Errorf("the log has no %s: %s", part, text)
		}
	}
}

// TestI13_StartsEndWithTheirCaller also while the guest boots.
func TestI13_StartsEndWithTheirCaller(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "web"} {
		g := &guestVM{boots: make(chan struct{})}
		s, info := superviseFake(t, g, newPlan(t, t.TempDir(), name), func(s *supervisor) {
			go func() {
				<-g.boots
				s.caller.ended()
			}()
		})
		var want error
		if name != "" {
			want = errStopped
		}
		if err := <-s.ended; info != nil || !errors.Is(err, want) {
			t.Errorf("%q: %+v, %v, want %v", name, info, err, want)
		}
	}
}

// TestReviewsEndWithoutAnError, as their caller wants it.
func TestReviewsEndWithoutAnError(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.Review = true
	s, info := superviseFake(t, &guestVM{}, p)
	if info == nil || there(t, filepath.Join(p.Dir, state.ControlSock)) {
		t.Error("others can connect to what is only looked at")
	}
	s.supervisor.caller.ended()
	must(t, <-s.ended)
}

// TestOnlyWhatOutlivesItsCallerIsHeld: a main command outlives its guest only where nobody else looks after the sandbox.
func TestOnlyWhatOutlivesItsCallerIsHeld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plan state.Plan
		want bool
	}{
		"a name":   {state.Plan{Spec: state.Spec{Name: "web"}}, true},
		"no name":  {state.Plan{}, false},
		"attached": {state.Plan{Spec: state.Spec{Name: "web"}, Attached: true}, false},
		"review":   {state.Plan{Spec: state.Spec{Name: "web"}, Review: true}, false},
		"--rm":     {state.Plan{Spec: state.Spec{Name: "web", AutoRemove: true}}, false},
	} {
		if got := newSupervisor(&c.plan, nil, nil).restart.holds(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestI13_RemovedSandboxesSettleNothing: the directory at their name is another sandbox's by now. The contrast is their own.
func TestI13_RemovedSandboxesSettleNothing(t *testing.T) {
	t.Parallel()
	for _, removed := range []bool{true, false} {
		p := newPlan(t, t.TempDir(), "web")
		p.NoNet, p.Audit = false, filepath.Join(t.TempDir(), "audit.jsonl")
		s := newSupervisor(p, nil, nil)
		must(t, s.openRecords())
		must(t, s.named.open())
		t.Cleanup(func() { _ = s.named.listener.Close(); _ = s.named.dir.Close(); _ = s.records.Close(nil) })
		if removed {
			must(t, os.RemoveAll(p.Dir))
			newNamed(t, p.Home, "web")
		}
		st, err := state.ReadStored(p.Dir, "web")
		must(t, err)
		until := time.Now().Add(time.Hour)
		st.Requests = []state.Request{{ID: "once2222", Host: "a.example", Port: 443, State: state.RequestApproved, Lifetime: state.ForOnce, Until: &until}}
		must(t, state.WriteJSON(p.Dir, state.StoredFile, st))
		must(t, s.access.settleOffline())
		want := map[bool]state.RequestState{true: state.RequestApproved, false: state.RequestEnded}[removed]
		if got := requestState(t, s); got != want {
			t.Errorf("removed %t: the request is %s, want %s", removed, got, want)
		}
	}
}

// TestI14_CachesAreSharedReadOnly: no machine writes to the disk that others have, and none of them loses it while it runs.
func TestI14_CachesAreSharedReadOnly(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for _, file := range []string{state.LockFile, state.CacheDisk} {
		path := state.CachesPath(home, "g00000001", file)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, nil, 0o600))
	}
	p := newPlan(t, home, "")
	p.Caches = []string{"pip"}
	g := &guestVM{}
	s, info := superviseFake(t, g, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	want := vm.Disk{Path: state.CachesPath(home, "g00000001", state.CacheDisk), ReadOnly: true, ID: serialCaches}
	if len(g.spec.Disks) < 3 || g.spec.Disks[2] != want || g.greeting.GetRoot().GetCacheDisk().GetDevice() != "vdc" || g.greeting.GetRoot().GetCacheDisk().GetSerial() != serialCaches {
		t.Errorf("the machine has %+v, and the guest is told %v", g.spec.Disks, g.greeting.GetRoot().GetCacheDisk())
	}
	if g.spec.Warm {
		t.Error("a copy of a saved machine has a disk more")
	}
	if lock, err := state.LockGeneration(home, "g00000001"); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("it may be removed: %v, %v", lock, err)
	}
	must(t, closeFiles(g.spec.Held))
	s.cancel(errCallerGone)
	must(t, <-s.ended)
}

// TestPortsThatCannotBeWrittenDownAreFree for others at once.
func TestPortsThatCannotBeWrittenDownAreFree(t *testing.T) {
	t.Parallel()
	plan := newPlan(t, t.TempDir(), "web")
	plan.NoNet = false
	s, info := superviseFake(t, &guestVM{}, plan)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	free, err := listenAt(t.Context(), plan.Home, state.Port{Guest: 80})
	must(t, err)
	free.close()
	record := filepath.Join(plan.Dir, state.InfoFile)
	must(t, os.Remove(record))
	must(t, os.MkdirAll(filepath.Join(record, "x"), 0o700)) // no file takes its place
	if _, err := s.ports.AddPort(free.String()); err == nil {
		t.Error("it is written")
	}
	again, err := listenAt(t.Context(), plan.Home, free.Port)
	if err != nil {
		t.Errorf("the port is taken: %v", err)
	} else {
		again.close()
	}
	must(t, os.RemoveAll(record))
	s.cancel(errCallerGone)
	must(t, <-s.ended)
}

// TestClocksAreSetBehindAPause at the next look, and not only at the tenth.
func TestClocksAreSetBehindAPause(t *testing.T) {
	t.Parallel()
	g := &guestVM{behind: &atomic.Int64{}}
	look := make(chan time.Time)
	s, info := superviseFake(t, g, newPlan(t, t.TempDir(), "web"), func(s *supervisor) {
		s.looks = func() (<-chan time.Time, func()) { return look, func() {} }
	})
	if info == nil {
		t.Fatal(<-s.ended)
	}
	must(t, s.pause.set(true))
	g.behind.Store(int64(time.Hour))
	must(t, s.pause.set(false))
	look <- time.Time{}
	look <- time.Time{} // the one before is over
	if off := time.Duration(g.behind.Load()); off.Abs() > time.Minute {
		t.Errorf("the guest's clock is %s behind", off)
	}
}

// TestNoticesOfARunBeforeAreTakenBack where a sandbox ends by itself: the guest's disk may hold one that a kill left.
func TestNoticesOfARunBeforeAreTakenBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec state.Spec
		want bool
	}{
		"idle": {state.Spec{IdleStop: time.Hour}, true}, "lifetime": {state.Spec{Lifetime: time.Hour}, true}, "neither": {state.Spec{}, false},
	} {
		p := newPlan(t, t.TempDir(), "web")
		p.IdleStop, p.Lifetime = c.spec.IdleStop, c.spec.Lifetime
		var removed atomic.Bool
		s, info := superviseFake(t, &guestVM{did: func(what string) {
			if what == "remove "+state.StopNotice {
				removed.Store(true)
			}
		}}, p)
		if info == nil {
			t.Fatal(<-s.ended)
		}
		if removed.Load() != c.want {
			t.Errorf("%s: removed %t", name, removed.Load())
		}
	}
}

// TestLifetimesOfCrashedGuestsGoOn, while a start by hand begins a new one where the last was over.
func TestLifetimesOfCrashedGuestsGoOn(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.Lifetime = time.Hour
	st, err := state.ReadStored(p.Dir, "web")
	must(t, err)
	st.Lifetime, st.Ran = time.Hour, 2*time.Hour
	must(t, state.WriteJSON(p.Dir, state.StoredFile, st))
	s, info := superviseFake(t, &guestVM{}, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	if err := s.life.over(time.Now()); err != nil {
		t.Errorf("started by hand: %v", err)
	}
	again := newSupervisor(&state.Plan{Spec: p.Spec, Dir: p.Dir, Again: &state.Again{}}, nil, nil)
	again.ctx, again.agent = s.ctx, s.agent
	must(t, state.WriteJSON(p.Dir, state.StoredFile, st))
	must(t, again.beginLife())
	if err := again.life.over(time.Now()); !errors.Is(err, state.ErrLifetime) {
		t.Errorf("after a crash: %v", err)
	}
}
