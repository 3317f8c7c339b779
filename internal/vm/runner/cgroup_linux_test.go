package runner

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm"
)

// groups makes a tree of control groups as a file system shows them: path to the controllers of its groups.
func groups(t *testing.T, own string, tree map[string]string) (self, mount string) {
	t.Helper()
	mount = filepath.Join(t.TempDir(), "cgroup")
	for path, controllers := range tree {
		dir := filepath.Join(mount, path)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(controllers+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	self = filepath.Join(t.TempDir(), "self")
	if err := os.WriteFile(self, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	return self, mount
}

// TestCgroupBoundsAreWritten looks at where a group is made, and with what. The kernel's part is TestI8_CgroupBoundsTheVMM's.
func TestCgroupBoundsAreWritten(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		own  string
		tree map[string]string
		in   string
	}{
		"beside its own": {"0::/user/app/term\n", map[string]string{"": "", "user": "cpu memory pids", "user/app": "pids cpu memory", "user/app/term": ""}, "user/app"},
		"higher up":      {"9:pids:/x\n0::/user/app/term\n", map[string]string{"": "", "user": "memory pids", "user/app": "memory", "user/app/term": ""}, "user"},
		"in the root":    {"0::/\n", map[string]string{"": "memory pids"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			self, mount := groups(t, tt.own, tt.tree)
			g, err := newCgroup(self, mount, limits{memory: 3 << 30, threads: 130})
			if err != nil {
				t.Fatal(err)
			}
			dir := g.dir.Name()
			if filepath.Dir(dir) != filepath.Join(mount, tt.in) || !strings.HasPrefix(filepath.Base(dir), cgroupPrefix) {
				t.Errorf("made %s, want it in %q", dir, tt.in)
			}
			for file, want := range map[string]string{"memory.max": "3221225472", "memory.swap.max": "3221225472", "pids.max": "130"} {
				if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
					t.Errorf("%s is %q (%v), want %s", file, got, err, want)
				}
				if err := os.Remove(filepath.Join(dir, file)); err != nil { // the kernel's files go with their group
					t.Error(err)
				}
			}
			g.close()
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the group is left: %v", err)
			}
		})
	}
}

// TestVMMsStayInTheirCallersGroup: no runtime has switched controllers on below a pod's group, so that the nearest place for a group
// is beside the pods, outside of the pod's limits and accounts. The twin gets one there.
func TestVMMsStayInTheirCallersGroup(t *testing.T) {
	t.Parallel()
	for _, stays := range []bool{true, false} {
		l, err := NewLaunch(&vm.Spec{CPUs: 1, MemoryMiB: 128, CallersGroup: stays})
		if err != nil {
			t.Fatal(err)
		}
		closeAll(l.Files)
		if err := l.closeChannels(); err != nil {
			t.Fatal(err)
		}
		self, mount := groups(t, "0::/kubepods/pod1/box\n", map[string]string{
			"": "memory pids", "kubepods": "memory pids", "kubepods/pod1": "", "kubepods/pod1/box": "",
		})
		g, err := newCgroup(self, mount, l.limits)
		switch {
		case stays && (g != nil || !errors.Is(err, errNoCgroup)):
			t.Errorf("a pod's VMM leaves its caller's group: %v, %v", g, err)
		case !stays && (err != nil || filepath.Dir(g.dir.Name()) != filepath.Join(mount, "kubepods")):
			t.Errorf("another VMM: %v, %v", g, err)
		}
	}
}

func TestUndelegatedCgroupsAreNotUsed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		own  string
		tree map[string]string
	}{
		"one controller":   {"0::/a/b\n", map[string]string{"": "memory", "a": "pids", "a/b": ""}},
		"similar names":    {"0::/a\n", map[string]string{"": "memory2 hugepids", "a": ""}},
		"version 1":        {"4:memory:/\n8:pids:/\n", map[string]string{"": "memory pids"}},
		"outside":          {"0::/../..\n", map[string]string{"": "memory pids"}},
		"another's mounts": {"0::/nosuch/x\n", map[string]string{"": ""}},
		"nothing":          {"", nil},
	} {
		self, mount := groups(t, tt.own, tt.tree)
		if g, err := newCgroup(self, mount, limits{1, 1}); !errors.Is(err, errNoCgroup) || g != nil {
			t.Errorf("%s: %v, %v", name, g, err)
		}
		if left, err := filepath.Glob(filepath.Join(mount, "*", cgroupPrefix+"*")); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
}

// TestAbandonedCgroupsAreRemoved, and no young or used ones.
func TestAbandonedCgroupsAreRemoved(t *testing.T) {
	t.Parallel()
	self, mount := groups(t, "0::/\n", map[string]string{
		"": "memory pids", cgroupPrefix + "used": "", "another": "",
	})
	old := time.Now().Add(-2 * cgroupAge)
	for _, name := range []string{"used", "left", "new"} {
		dir := filepath.Join(mount, cgroupPrefix+name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, old, old); name != "new" && err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(mount, cgroupPrefix+"new"), time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := newCgroup(self, mount, limits{1, 1}); err != nil {
		t.Fatal(err)
	}
	for name, there := range map[string]bool{cgroupPrefix + "used": true, cgroupPrefix + "left": false, cgroupPrefix + "new": true, "another": true} {
		if _, err := os.Stat(filepath.Join(mount, name)); errors.Is(err, os.ErrNotExist) == there {
			t.Errorf("%s: %v, want it there: %v", name, err, there)
		}
	}
}

// greedyArg makes the test's program take more memory or threads than a VMM may have here.
const greedyArg = "__greedy-for-test"

const (
	greedyMemory  = 160 << 20
	greedyThreads = 60
)

// fewer are bounds below what a greedy program takes, with room for a Go program.
var fewer = limits{memory: 64 << 20, threads: 40}

// greedy says "survived" when it has got what it wants.
func greedy(what string) {
	switch what {
	case "memory":
		b, err := unix.Mmap(-1, 0, greedyMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
		if err != nil {
			panic(err)
		}
		for i := 0; i < len(b); i += os.Getpagesize() {
			b[i] = 1
		}
	case "threads":
		started := make(chan struct{})
		for range greedyThreads {
			go func() {
				runtime.LockOSThread()
				started <- struct{}{}
				select {}
			}()
			<-started
		}
	}
	fmt.Fprintln(os.NewFile(FirstFileFD, "agent"), "survived")
}

// mountCgroupsEnv makes TestI8_CgroupBoundsTheVMM mount version 2 and switch its controllers on first, as the only
// service of an emulated host.
const mountCgroupsEnv = "MSB_TEST_MOUNT_CGROUPS"

// TestI8_CgroupBoundsTheVMM takes too much in a group, and without one. It runs where groups are delegated, and in an
// emulated host by TestLibkrun (vm/krun).
func TestI8_CgroupBoundsTheVMM(t *testing.T) {
	if os.Getenv(mountCgroupsEnv) != "" {
		err := errors.Join(unix.Mount("cgroup2", cgroupMount, "cgroup2", 0, ""),
			os.WriteFile(filepath.Join(cgroupMount, "cgroup.subtree_control"), []byte("+memory +pids"), 0))
		if err != nil {
			t.Fatal(err)
		}
	}
	g, err := newCgroup(cgroupSelf, cgroupMount, fewer)
	if err != nil {
		t.Skip(err)
	}
	g.close()
	for _, tt := range []struct {
		what string
		in   limits
		fits bool
	}{{"memory", fewer, false}, {"threads", fewer, false}, {"memory", limits{1 << 30, 40}, true}, {"threads", limits{64 << 20, 200}, true}} {
		_, ro, rw := files(t)
		l := launch(t, []string{exe(t), greedyArg, tt.what}, ro, rw)
		l.limits, l.Plan.Env = tt.in, []string{"GOTRACEBACK=none"}
		m, err := l.start(t.Context())
		closeAll(l.Files)
		if err != nil {
			t.Fatal(err)
		}
		if c := strings.Join(m.Confinement(), "; "); !strings.HasSuffix(c, tt.in.String()) {
			t.Errorf("confined by %s, want %s in it", c, tt.in)
		}
		line, _ := bufio.NewReader(m.Agent()).ReadString('\n')
		if fits := line == "survived\n"; fits != tt.fits {
			t.Errorf("%s in %s: it said %q", tt.what, tt.in, line)
		}
		err = m.Wait(t.Context())
		t.Logf("%s in %s: %q, %v", tt.what, tt.in, line, err)
		if want := map[string]error{"memory": vm.ErrKilled, "threads": vm.ErrVMM}[tt.what]; !tt.fits && !errors.Is(err, want) {
			t.Errorf("%s in %s: %v, want %v", tt.what, tt.in, err, want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(g.dir.Name()), cgroupPrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
