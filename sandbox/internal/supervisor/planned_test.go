package supervisor

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/audit"
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

// TestCopiesForgetWhatTheyWere: a guest is told of what its disk or its machine was before, and what it has done is not asked again.
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
