//go:build linux

package workload

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// groupOf is a group of ordinary files.
func groupOf(t *testing.T, files map[string]string) *Cgroup {
	t.Helper()
	all, err := NewCgroups(t.TempDir(), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := all.NewNamed("one")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.dir.Close() })
	for name, text := range files {
		write(t, filepath.Join(g.path, name), text)
	}
	return g
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestOOMKillsAreTold when there are more of them, each time, and until stop.
func TestOOMKillsAreTold(t *testing.T) {
	t.Parallel()
	g := groupOf(t, map[string]string{"memory.events": "oom_kill 0\n"})
	told := make(chan uint64, 8)
	stop, err := g.WatchOOM(func(n uint64) { told <- n })
	if err != nil {
		t.Fatal(err)
	}
	events := filepath.Join(g.path, "memory.events")
	if g.OOMKilled() {
		t.Error("a kill before the first")
	}
	write(t, events, "high 4\noom_kill 1\n")
	if n := <-told; n != 1 || !g.OOMKilled() {
		t.Errorf("%d kills", n)
	}
	write(t, events, "high 5\noom_kill 1\n")
	write(t, events, "high 5\noom_kill 3\n")
	if n := <-told; n != 3 {
		t.Errorf("%d kills", n)
	}
	stop()
	write(t, events, "oom_kill 9\n")
	if len(told) > 0 {
		t.Error("kills are told after stop")
	}
	if _, err := groupOf(t, nil).WatchOOM(nil); err == nil {
		t.Error("a kernel without the file is watched")
	}
}

// TestGroupsSettleWhenTheirProcessesHaveEnded, and a bound of time is kept.
func TestGroupsSettleWhenTheirProcessesHaveEnded(t *testing.T) {
	t.Parallel()
	g := groupOf(t, map[string]string{"cgroup.events": "populated 1\nfrozen 0\n", "cgroup.freeze": ""})
	if err := g.Settle(time.Millisecond); err == nil {
		t.Error("a group with processes has settled")
	}
	settled := make(chan error)
	go func() { settled <- g.Settle(time.Minute) }()
	write(t, filepath.Join(g.path, "cgroup.events"), "populated 0\nfrozen 0\n")
	if err := <-settled; err != nil {
		t.Error(err)
	}
	stop := make(chan struct{})
	close(stop)
	if err := g.Freeze(true, stop); err == nil || !strings.Contains(err.Error(), "held still") {
		t.Errorf("a freeze that is given up: %v", err)
	}
	if b, _ := os.ReadFile(filepath.Join(g.path, "cgroup.freeze")); string(b) != "1" {
		t.Errorf("wrote %q", b)
	}
	if err := g.Freeze(false, nil); err != nil {
		t.Error(err)
	}
	frozen := make(chan error)
	go func() { frozen <- g.Freeze(true, nil) }()
	write(t, filepath.Join(g.path, "cgroup.events"), "populated 0\nfrozen 1\n")
	if err := <-frozen; err != nil {
		t.Error(err)
	}
}

// TestFilesOfGroupsAreRead with what is odd in them left out, and not more than there is a bound for.
func TestFilesOfGroupsAreRead(t *testing.T) {
	t.Parallel()
	g := groupOf(t, map[string]string{
		"memory.max": "max\n", "pids.max": "7\n", "odd": "x\n", "many": strings.Repeat("a 1\n", 3) + "b 2 3\nc\nd -1\ne 5\n",
		"cgroup.procs": "1\n0\n-5\nx\n2\n", "below/cgroup.procs": "3\n4\n", "below/deep/cgroup.procs": "5\n",
	})
	if g.Value("memory.max") != math.MaxUint64 || g.Value("pids.max") != 7 || g.Value("odd") != 0 || g.Value("none") != 0 {
		t.Error("values: ", g.Value("memory.max"), g.Value("pids.max"), g.Value("odd"))
	}
	if v, err := g.Values("many"); err != nil || len(v) != 2 || v["a"] != 1 || v["e"] != 5 {
		t.Errorf("%v, %v", v, err)
	}
	pids, err := g.Procs(10)
	if slices.Sort(pids); err != nil || !slices.Equal(pids, []int{1, 2, 3, 4, 5}) {
		t.Errorf("%v, %v", pids, err)
	}
	if pids, err := g.Procs(4); err != nil || len(pids) != 4 {
		t.Errorf("%v, %v", pids, err)
	}
	if err := g.Set("none/x", "1"); err == nil || !strings.Contains(err.Error(), "none/x") {
		t.Error(err)
	}
	for _, f := range []string{"memory.max", "pids.max", "odd", "many", "cgroup.procs", "below/cgroup.procs", "below/deep/cgroup.procs"} {
		_ = os.Remove(filepath.Join(g.path, f)) // as the kernel's files need not be
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(g.path); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestGroupsAreEachExecsOwn: the first is made before it is asked for.
func TestGroupsAreEachExecsOwn(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	all, err := NewCgroups(top, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	all.Prepare()
	ready, err := os.ReadDir(filepath.Join(top, "msb"))
	if err != nil || !slices.ContainsFunc(ready, func(e os.DirEntry) bool { return e.IsDir() }) {
		t.Errorf("no group is ready: %v, %v", ready, err)
	}
	var paths []string
	for range 3 {
		g, err := all.New()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.dir.Close() })
		if _, err := os.Stat(g.path); err != nil || slices.Contains(paths, g.path) {
			t.Errorf("%s is of another exec, or not there: %v", g.path, err)
		}
		paths = append(paths, g.path)
	}
}

// TestLimitsAreOfAllExecsTogether: each in its file of the group above those of execs, whose controllers are on for them.
func TestLimitsAreOfAllExecsTogether(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root reads what has no permissions")
	}
	for _, limits := range []Limits{{PIDs: 7, MemoryBytes: 9}, {}} {
		mount := t.TempDir()
		if _, err := NewCgroups(mount, limits); err != nil {
			t.Fatal(err)
		}
		const on = "+memory +pids +cpu"
		want := map[string]string{"cgroup.subtree_control": on, "msb/cgroup.subtree_control": on, "pids.max": "", "memory.max": "", "msb/pids.max": "7", "msb/memory.max": "9"}
		if limits == (Limits{}) {
			want["msb/pids.max"], want["msb/memory.max"] = "", ""
		}
		for file, text := range want {
			if b, err := os.ReadFile(filepath.Join(mount, file)); string(b) != text || (err != nil) != (text == "") {
				t.Errorf("%s: %q, %v; want %q", file, b, err, text)
			}
		}
	}
}

// TestGroupsWithProcessesAreRemovedLater: once those that an exec left behind have ended. No descriptor is held for them.
func TestGroupsWithProcessesAreRemovedLater(t *testing.T) {
	t.Parallel()
	all, err := NewCgroups(t.TempDir(), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	next := func() *Cgroup {
		g, err := all.New()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	one, two := next(), next()
	process := filepath.Join(one.path, "process") // what can't be removed
	write(t, process, "")
	one.Close()
	two.Close()
	if _, err := os.Stat(two.path); !os.IsNotExist(err) {
		t.Errorf("one without processes: %v", err)
	}
	three := next()
	if _, err := os.Stat(one.path); err != nil {
		t.Errorf("one with a process: %v", err)
	}
	three.Close()
	if err := os.Remove(process); err != nil {
		t.Fatal(err)
	}
	next().Close()
	if _, err := os.Stat(one.path); !os.IsNotExist(err) {
		t.Errorf("one whose process has ended: %v", err)
	}
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, all.root) {
			t.Errorf("%s is open", to)
		}
	}
}
