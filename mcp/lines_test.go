package mcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox"
)

// looksAlive makes a sandbox look as if it ran, though this process, which is no supervisor, has its socket.
func (p *playground) looksAlive(t *testing.T, name string) {
	t.Helper()
	dir := filepath.Join(p.opts.Home.Dir(), "sandboxes", name)
	l, err := net.Listen("unix", filepath.Join(dir, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // nobody accepts
	if err := os.WriteFile(filepath.Join(dir, "run.json"), []byte(`{"started":"2026-01-01T00:00:00Z","info":{"id":"x","backend":"krun"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestResetsNeedAnEnd: the files of a sandbox whose end is not known stay.
func TestResetsNeedAnEnd(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Tools, o.Lifetime = []string{AllTools}, time.Hour })
	p.says(t, false, "sandbox_create", m{"name": "web"})
	p.says(t, false, "sandbox_inspect", m{"sandbox": "web"}, `"lifetime_s":3600,"lifetime_left_s":3600`)
	p.looksAlive(t, "web")
	p.says(t, false, "sandbox_inspect", m{"sandbox": "web"}, `"running":true`, `"backend":"krun"`)
	for tool, args := range map[string]m{"sandbox_reset": {"sandbox": "web"}, "sandbox_stop": {"sandbox": "web", "remove": true}} {
		p.says(t, true, tool, args)
	}
	if !p.has("web") {
		t.Error("it was removed")
	}
}

// TestHistoryIsOfTheDefault by any of its names.
func TestHistoryIsOfTheDefault(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Tools = []string{AllTools} })
	if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: defaultName}); err != nil {
		t.Fatal(err)
	}
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	for _, args := range []m{{}, {"sandbox": ""}, {"sandbox": defaultName}, {"sandbox": p.defaultName()}} {
		p.says(t, false, "sandbox_history", args, `"tool":"sandbox_exec"`)
	}
}

// TestMissingSandboxesListUsableOnes alone.
func TestMissingSandboxesListUsableOnes(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Sandboxes = 9 })
	for name, label := range map[string]string{"mine": p.label, "older": p.family + strings.Repeat("0", 32)} {
		if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: name, Label: label}); err != nil {
			t.Fatal(err)
		}
	}
	p.says(t, true, "sandbox_exec", m{"sandbox": "none", "command": "x"}, "no such sandbox: none; there are: mine; sandbox_create makes one")
}

// meanwhile is a context by whose n-th use something else happens.
type meanwhile struct {
	context.Context
	mu *sync.Mutex
	n  *int
	do func()
}

func (w meanwhile) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if *w.n--; *w.n == 0 {
		w.do()
	}
	return w.Context.Done()
}

// TestI15_DefaultsTakenMeanwhileAreLeftAlone: another policy's server makes "default" while this one is about to.
func TestI15_DefaultsTakenMeanwhileAreLeftAlone(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	n := 1
	ctx := meanwhile{t.Context(), new(sync.Mutex), &n, func() {
		if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: defaultName}); err != nil {
			t.Error(err)
		}
	}}
	_, st, err := p.use(ctx, "")
	if err != nil || st.Name == defaultName || st.Label != p.label {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestI11_PlacesOfStartsAreFreed, once the last start of a sandbox has ended.
func TestI11_PlacesOfStartsAreFreed(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Sandboxes = 1 })
	for range 2 {
		if err := p.mayStart("a"); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []error{errTooMany, errTooMany, nil} {
		if err := p.mayStart("b"); !errors.Is(err, want) {
			t.Errorf("behind %d ends: %v, want %v", i, err, want)
		}
		p.started("a")
	}
}

// TestI15_SandboxesNeedTheirPolicyToStart.
func TestI15_SandboxesNeedTheirPolicyToStart(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: "web", Label: p.label}); err != nil {
		t.Fatal(err)
	}
	st, err := p.own("web", false)
	if err != nil {
		t.Fatal(err)
	}
	st.Created = st.Created.Add(time.Second) // another has its name since
	if m, err := p.start(t.Context(), st); !errors.Is(err, sandbox.ErrNoSandbox) || len(p.fake.running) > 0 {
		t.Errorf("%v, %v", m, err)
	}
}

// TestOlderTimersLeaveNewSessions of the same sandbox.
func TestOlderTimersLeaveNewSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &sessions{keep: time.Second}
		_ = k.lend("a", k.add("a", time.Unix(1, 0), newEndable())).Close()
		if k.take("a", time.Unix(2, 0)) != nil {
			t.Error("another run has the session")
		}
		s := k.add("a", time.Unix(2, 0), newEndable())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if k.take("a", time.Unix(2, 0)) != s {
			t.Error("the end of an older session was that of the new one")
		}
	})
}

// vanishing is a runner whose sandbox is removed as it is connected to.
type vanishing struct {
	*fakeRunner
	home *sandbox.Home
}

func (r vanishing) connect(ctx context.Context, st *sandbox.Status) (machine, error) {
	if err := r.home.Remove(ctx, st.Name); err != nil {
		return nil, err
	}
	return &fakeMachine{runner: r.fakeRunner, files: fakeFiles{}}, nil
}

// TestResultsNeedNoDenials: a program's result is there though what was denied can't be read.
func TestResultsNeedNoDenials(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_create", m{"name": "web"})
	p.runner = vanishing{p.fake, p.opts.Home}
	p.says(t, false, "sandbox_exec", m{"sandbox": "web", "command": "x"}, "exit code 0")
}

// TestLongOutputsOfCodeBecomeFiles, whichever language's.
func TestLongOutputsOfCodeBecomeFiles(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.fake.exec = longOutput
	for _, language := range []string{"python", "sh"} {
		p.says(t, false, "sandbox_run_code", m{"steps": []m{{"language": language, "code": "x"}}}, "exit code 0", "all of stdout is in "+outputDir)
	}
}

// imageless is a runner that has no image for what it runs.
type imageless struct{ *fakeRunner }

func (imageless) run(context.Context, sandbox.Config) (machine, error) {
	return nil, fmt.Errorf("%w: x", image.ErrNotCached)
}

// TestRunsNameTheImagesThereAre where theirs is none.
func TestRunsNameTheImagesThereAre(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.runner = imageless{p.fake}
	p.says(t, true, "sandbox_run", m{"command": "x"}, "is not in the cache", "take one of these: "+sandbox.DefaultImage)
}

// TestMethodsAreOfAnyCase in what is explained.
func TestMethodsAreOfAnyCase(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) {
		o.Floor = policy(t, "[[egress.allow]]\nhosts = [\"api.example\"]\nmethods = [\"GET\"]\n")
	})
	for method, want := range map[string]string{"GET": `"action":"inspect"`, "get": `"action":"inspect"`, "post": `"action":"deny"`} {
		p.says(t, false, "network", m{"action": "explain", "to": "api.example:443", "method": method, "path": "/"}, want)
	}
}

// infoFiles are files of which each is this one.
type infoFiles struct {
	fakeFiles
	info agentclient.FileInfo
}

func (f infoFiles) Stat(context.Context, string, bool) (agentclient.FileInfo, error) {
	return f.info, nil
}

type infoMachine struct {
	*fakeMachine
	infoFiles
	job string
}

func (m infoMachine) Files() files { return m.infoFiles }
func (m infoMachine) StartJob(context.Context, string, sandbox.ExecOptions) (string, error) {
	return m.job, nil
}

type infoRunner struct {
	*fakeRunner
	infoMachine
}

func (r infoRunner) connect(context.Context, *sandbox.Status) (machine, error) {
	return r.infoMachine, nil
}

// TestDirectoriesAreNotRead, and a guest's name of a job that can be none is refused.
func TestDirectoriesAreNotRead(t *testing.T) {
	t.Parallel()
	all, err := dialNamed(t, "dir").Files().ReadDir(t.Context(), "/")
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	p := serve(t, nil)
	p.runner = infoRunner{p.fake, infoMachine{&fakeMachine{runner: p.fake}, infoFiles{fakeFiles{}, all[0]}, "a\x1b" + strings.Repeat("b", 1<<20)}}
	p.says(t, true, "fs_read", m{"path": "/d\x1b"}, `/d\x1b is a directory: fs_list shows what is in it`)
	if text := p.says(t, true, "job", m{"action": "start", "command": "x"}, `a job named`); strings.Contains(text, "\x1b") || len(text) > maxSentence {
		t.Errorf("%.300q", text)
	}
}

// TestCancelledListsDoNotWait for others.
func TestCancelledListsDoNotWait(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	for range maxListings {
		p.files.listing <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if text, err := p.files.fsList(ctx, []byte(`{"path":"/"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("%q, %v", text, err)
	}
}

// TestRefusedCopiesNameWritableDirectories, if there are any.
func TestRefusedCopiesNameWritableDirectories(t *testing.T) {
	t.Parallel()
	read, write := t.TempDir(), t.TempDir()
	p := serve(t, func(o *Options) {
		o.Tools, o.Directories = []string{"files"}, []sandbox.Directory{{Host: read, Guest: "/read"}, {Host: write, Guest: "/write", Writable: true}}
	})
	p.says(t, true, "fs_download", m{"from": "/x", "to": read + "/x"}, " is shared read-only; take another directory ("+p.opts.Directories[1].Host+"), or fs_read")
}
