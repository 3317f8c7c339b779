package mcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// swapping is the real runner; right before its first session somebody else's sandbox takes the name.
type swapping struct {
	realRunner
	swap func()
}

func (r swapping) connect(ctx context.Context, st *sandbox.Status) (machine, error) {
	r.swap()
	return r.realRunner.connect(ctx, st)
}

// TestI15_NamesMayPassToOthers has the operator make a sandbox under the name of one that an agent uses at this moment: the
// call ends, and neither starts nor removes the other.
func TestI15_NamesMayPassToOthers(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_create", m{"name": "dev"})
	before, err := p.own("dev", false)
	if err != nil {
		t.Fatal(err)
	}
	swap := sync.OnceFunc(func() {
		if err := p.opts.Home.Remove(t.Context(), "dev"); err != nil {
			t.Error(err)
		}
		if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: "dev"}); err != nil {
			t.Error(err)
		}
	})
	p.runner = swapping{realRunner{home: p.opts.Home, program: "/nosuch", kept: &sessions{keep: keepSession}}, swap}
	p.says(t, true, "sandbox_exec", m{"sandbox": "dev", "command": "true"}, "no such sandbox")
	for name, call := range map[string]func() error{
		"Stop":   func() error { return p.only(before).Stop(t.Context(), "dev") },
		"Remove": func() error { return p.only(before).Remove(t.Context(), "dev") },
		"Reset":  func() error { return p.only(before).Reset(t.Context(), "dev") },
	} {
		if err := call(); err == nil {
			t.Errorf("%s reached the other sandbox", name)
		}
	}
	if _, err := p.opts.Home.Inspect("dev"); err != nil {
		t.Errorf("the operator's sandbox: %v", err)
	}
}

// TestI15_RunsOfOthersAreNotJoined: the sandbox that an agent used runs, and is another one's by the time it is connected to.
func TestI15_RunsOfOthersAreNotJoined(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_create", m{"name": "dev"})
	st, err := p.own("dev", false)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	st.Started, st.Created = &began, st.Created.Add(-time.Second) // as one that was made before
	r := realRunner{home: p.opts.Home, program: "/nosuch", kept: &sessions{keep: keepSession}}
	if _, err := r.connect(t.Context(), st); !errors.Is(err, sandbox.ErrNoSandbox) {
		t.Errorf("the other one is connected to: %v", err)
	}
	st.Created = st.Created.Add(time.Second) // the twin
	if _, err := r.connect(t.Context(), st); !errors.Is(err, sandbox.ErrNotRunning) {
		t.Errorf("its own: %v", err)
	}
}

// TestI11_ServersShareTheBoundOnSandboxes that begin to make some at the same time.
func TestI11_ServersShareTheBoundOnSandboxes(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	var making sync.WaitGroup
	var first *playground
	for i := range 6 {
		p := serve(t, func(o *Options) { o.Home, o.Sandboxes, o.Disk = home, 1, 1<<30 })
		first = p
		making.Go(func() { _ = p.create(t.Context(), fmt.Sprintf("s%d", i), &machineArgs{}) }) // all but one may fail
	}
	making.Wait()
	mine, err := first.mine()
	if err != nil || len(mine) > 1 {
		t.Errorf("%d sandboxes (%v), want at most 1", len(mine), err)
	}
	for i := range mine {
		if mine[i].Disk != 1<<30 {
			t.Errorf("its disk has %d bytes, want what the operator allows", mine[i].Disk)
		}
	}
}

// TestI17_ServersShareTheBoundOnClones that begin to make some at the same time.
func TestI17_ServersShareTheBoundOnClones(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	var making sync.WaitGroup
	var all []*playground
	for range 6 {
		all = append(all, serve(t, func(o *Options) { o.Home, o.Sandboxes, o.Disk = home, 2, 64<<20 }))
	}
	first := all[0]
	first.says(t, false, "sandbox_create", m{"name": "origin"})
	for i, p := range all {
		making.Go(func() { _, _ = ownSnapshots{p.boxes}.clone(t.Context(), "origin", "", fmt.Sprintf("s%d", i)) }) // all but one may fail
	}
	making.Wait()
	if mine, err := first.mine(); err != nil || len(mine) > 2 {
		t.Errorf("%d sandboxes (%v), want at most 2", len(mine), err)
	}
	for i := range 6 { // none may be left
		_, _ = first.stop(t.Context(), fmt.Sprintf("s%d", i), true)
	}
	if _, err := (ownSnapshots{first.boxes}).clone(t.Context(), "origin", "", "alone"); err != nil {
		t.Errorf("one alone: %v", err)
	}
}

// TestI17_ServersShareTheBoundsOnVolumesAndSnapshots that begin to make some at the same time.
func TestI17_ServersShareTheBoundsOnVolumesAndSnapshots(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	var making sync.WaitGroup
	var all []*playground
	for range 6 {
		all = append(all, serve(t, func(o *Options) {
			o.Home, o.Disk, o.Tools = home, 64<<20, []string{"volumes", "snapshots"}
		}))
	}
	first := all[0]
	first.says(t, false, "sandbox_create", m{"name": "origin"})
	for i := range maxVolumes - 1 {
		first.says(t, false, "volume_create", m{"name": fmt.Sprintf("v%d", i), "size_mb": 16})
		first.says(t, false, "snapshot_create", m{"sandbox": "origin", "snapshot": fmt.Sprintf("s%d", i)})
	}
	for i, p := range all { // all but one of each may fail
		making.Go(func() { _, _ = p.makeVolume(fmt.Sprintf("w%d", i), 16) })
		making.Go(func() { _, _ = ownSnapshots{p.boxes}.takeSnapshot(t.Context(), "origin", fmt.Sprintf("t%d", i)) })
	}
	making.Wait()
	if have, err := first.volumes(); err != nil || len(have) > maxVolumes {
		t.Errorf("%d volumes (%v), want at most %d", len(have), err, maxVolumes)
	}
	if have, err := (ownSnapshots{first.boxes}).snapshots(); err != nil || len(have) > maxSnapshots {
		t.Errorf("%d snapshots (%v), want at most %d", len(have), err, maxSnapshots)
	}
}

// TestI11_SnapshotsHoldNoOtherCalls: what takes long to copy keeps no other call waiting, and counts meanwhile.
func TestI11_SnapshotsHoldNoOtherCalls(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Disk, o.Tools = 64<<20, []string{"volumes", "snapshots"} })
	p.says(t, false, "sandbox_create", m{"name": "origin"})
	own := ownSnapshots{p.boxes}
	for i := range maxSnapshots - 1 {
		p.says(t, false, "snapshot_create", m{"sandbox": "origin", "snapshot": fmt.Sprintf("s%d", i)})
	}
	free, err := own.reserveSnapshot() // as the last one is being copied
	if err != nil {
		t.Fatal(err)
	}
	p.says(t, false, "volume_create", m{"name": "v", "size_mb": 16})
	p.says(t, true, "snapshot_create", m{"sandbox": "origin"}, "at most 8 may be")
	free()
	p.says(t, false, "snapshot_create", m{"sandbox": "origin"})
}

// TestI15_BoundsHoldForOlderSandboxes serves sandboxes again with smaller bounds than they were made with.
func TestI15_BoundsHoldForOlderSandboxes(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	first := serve(t, func(o *Options) { o.Home, o.Sandboxes, o.Lifetime, o.IdleStop = home, 3, time.Hour, time.Hour })
	for _, name := range []string{"a", "b", "c"} {
		first.says(t, false, "sandbox_create", m{"name": name, "cpus": 2})
	}
	same := serve(t, func(o *Options) { o.Home, o.Sandboxes, o.Lifetime, o.IdleStop = home, 2, 2*time.Hour, time.Hour })
	same.says(t, false, "sandbox_exec", m{"sandbox": "a", "command": "true"})
	for _, name := range []string{"a", "b"} { // as if they ran
		l, err := net.Listen("unix", filepath.Join(home.Dir(), "sandboxes", name, "control.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	same.says(t, true, "sandbox_exec", m{"sandbox": "c", "command": "true"}, "too many")
	same.says(t, false, "sandbox_exec", m{"sandbox": "a", "command": "true"})
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"lifetime":  {func(o *Options) { o.Lifetime = time.Minute }, "longer"},
		"idle stop": {func(o *Options) { o.IdleStop = time.Minute }, "longer"},
		"cpus":      {func(o *Options) { o.CPUs = 1 }, "larger"},
		"memory":    {func(o *Options) { o.Memory = sandbox.MinMemory }, "larger"},
		"disk":      {func(o *Options) { o.Disk = 1 << 30 }, "larger"},
	} {
		p := serve(t, func(o *Options) { o.Home, o.Lifetime, o.IdleStop = home, time.Hour, time.Hour; c.change(o) })
		if text := p.says(t, true, "sandbox_exec", m{"sandbox": "c", "command": "true"}, c.want); text == "" {
			t.Errorf("%s: no sentence", name)
		}
	}
}

// listening is the fake runner; its sandboxes run for everybody who looks, and begin to once gate is closed.
type listening struct {
	*fakeRunner
	t       *testing.T
	home    *sandbox.Home
	arrived chan string
	gate    chan struct{}
}

func (r listening) start(ctx context.Context, st *sandbox.Status) (machine, error) {
	r.arrived <- st.Name
	<-r.gate
	l, err := net.Listen("unix", filepath.Join(r.home.Dir(), "sandboxes", st.Name, "control.sock"))
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() { _ = l.Close() })
	return r.fakeRunner.start(ctx, st)
}

// TestI15_StartsAtOnceAreBounded starts more sandboxes than may run, all at once: one server lets no more begin, and of
// several servers each looks again. The twin of the first is the second: there all begin.
func TestI15_StartsAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	for _, servers := range []int{1, len(names)} {
		home := newHome(t)
		first := serve(t, func(o *Options) { o.Home, o.Sandboxes = home, len(names) })
		for _, name := range names {
			first.says(t, false, "sandbox_create", m{"name": name})
		}
		fake := &fakeRunner{running: map[string]*fakeMachine{}}
		r := listening{fake, t, home, make(chan string), make(chan struct{})}
		var all []*playground
		for range servers {
			p := serve(t, func(o *Options) { o.Home, o.Sandboxes = home, 1 })
			p.runner = r
			all = append(all, p)
		}
		refused := make(chan bool)
		for i, name := range names {
			go func() {
				text, failed := all[i%servers].call(t, "sandbox_exec", m{"sandbox": name, "command": "true"})
				refused <- failed && strings.Contains(text, "too many")
			}()
		}
		began, over := 0, 0
		for began+over < len(names) {
			select {
			case <-r.arrived:
				began++
			case no := <-refused:
				if over++; !no {
					t.Error("a call ended in another way")
				}
			}
		}
		close(r.gate)
		for ; over < len(names); over++ {
			<-refused
		}
		if began != servers || len(fake.running) > 1 || servers == 1 && len(fake.running) == 0 { // of several servers each may find the other's
			t.Errorf("%d servers: %d of %d starts began, %d sandboxes run", servers, began, len(names), len(fake.running))
		}
	}
}

// TestI15_ServersShareTheDefaultSandbox that is made by all of them at the same time.
func TestI15_ServersShareTheDefaultSandbox(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	fake := &fakeRunner{running: map[string]*fakeMachine{}}
	var all []*playground
	for range 6 {
		p := serve(t, func(o *Options) { o.Home = home })
		p.runner = fake
		all = append(all, p)
	}
	var calls sync.WaitGroup
	for _, p := range all {
		calls.Go(func() { p.says(t, false, "sandbox_exec", m{"command": "true"}, "exit code 0") })
	}
	calls.Wait()
	if mine, err := all[0].mine(); err != nil || len(mine) != 1 {
		t.Errorf("%d sandboxes, %v", len(mine), err)
	}
}

// TestI15_DefaultsNameOnlyOwnSandboxes: the default sandbox has one of two names, and somebody else's sandbox is used
// under neither.
func TestI15_DefaultsNameOnlyOwnSandboxes(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	other := defaultName + "-" + p.label[len(p.family):][:6]
	theirs := func(name, label string) {
		t.Helper()
		if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: name, Label: label}); err != nil {
			t.Fatal(err)
		}
	}
	for _, label := range []string{"", p.family + strings.Repeat("0", 32)} { // the operator's, and an older version's
		theirs(other, label)
		p.says(t, false, "sandbox_exec", m{"command": "true"}, "exit code 0")
		p.says(t, false, "sandbox_stop", m{"remove": true}, "default removed with its files")
		if err := p.opts.Home.Remove(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	theirs(defaultName, "")
	for tool, args := range map[string]m{"job": {"action": "list"}, "network": {"action": "denied"}, "fs_read": {"path": "relative"}} { // they make none
		if text, _ := p.call(t, tool, args); strings.Contains(text, other) {
			t.Errorf("%s names a sandbox that there is not: %s", tool, text)
		}
	}
	theirs(other, "")
	p.says(t, true, "sandbox_exec", m{"command": "true"}, other+", and is not yours")
	p.says(t, true, "sandbox_stop", m{"remove": true}, "no such sandbox")
	for _, name := range []string{other, defaultName} {
		if st, err := p.opts.Home.Inspect(name); err != nil || st.Label != "" {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
}
