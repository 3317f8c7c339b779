//go:build linux

package hostdir

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func TestI11_LimitsFollowTheProcess(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		descriptors, share int
		want               limits
	}{
		{1 << 20, 1, limits{maxNodes, maxHandles, maxLockFiles, maxDirs}},
		{1 << 20, 16, limits{maxNodes / 16, maxHandles / 16, maxLockFiles, maxDirs}},
		{1024, 1, limits{maxNodes, 384, 64, 64}},
		{256, 1, limits{maxNodes, 96, 16, 16}},
		{256, 16, limits{maxNodes / 16, 6, 1, 2}},
	} {
		got := limitsOf(tt.descriptors, tt.share)
		if got != tt.want {
			t.Errorf("%d descriptors, %d directories: %+v, want %+v", tt.descriptors, tt.share, got, tt.want)
		}
		if sum := tt.share * (got.handles + got.locks + got.dirs); sum > tt.descriptors*2/3 {
			t.Errorf("%d descriptors, %d directories: %d are the guest's", tt.descriptors, tt.share, sum)
		}
	}
}

// TestI11_GuestsLeaveDescriptors takes all that a guest gets of a process with few descriptors, which is one of its own: a
// third of them stays for the machine and its callers.
func TestI11_GuestsLeaveDescriptors(t *testing.T) {
	const child, few, stay = "HOSTDIR_TEST_DESCRIPTORS", 256, 80
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestI11_GuestsLeaveDescriptors$")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: few, Max: few}); err != nil {
		t.Fatal(err)
	}
	for _, share := range []int{1, 16} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			takeAll(t, share)
			var rest []*os.File
			defer func() {
				for _, f := range rest {
					_ = f.Close()
				}
			}()
			for range stay {
				f, err := os.Open("/dev/null")
				if err != nil {
					t.Fatalf("after %d descriptors: %v", len(rest), err)
				}
				rest = append(rest, f)
			}
		})
	}
}

// takeAll has guests open files, directories and locks until they get no more.
func takeAll(t *testing.T, share int) {
	t.Helper()
	const files = 200
	dir := t.TempDir()
	for i := range files {
		put(t, dir, map[string]string{fmt.Sprint("f", i): "", fmt.Sprint("d", i, "/f"): ""})
	}
	for range share {
		g := newGuest(t, dir, Options{Writable: true, Share: share})
		opened := 0
		for i := range files {
			id, err := g.walk(fmt.Sprint("f", i))
			if err == nil {
				_, err = g.open(id, unix.O_RDWR)
			}
			if err == nil {
				opened++
			}
		}
		for i := range files {
			_, _ = g.walk(fmt.Sprint("d", i), "f") // keeps the directory open
		}
		h := g.s.handles[1]
		for owner := range uint64(files) {
			_ = g.s.locks.set(g.s, h.node, lockRequest{fh: h.id, owner: owner, start: owner, end: owner, kind: unix.F_WRLCK})
		}
		if len(g.s.locks.files) == 0 || opened == 0 || opened == files {
			t.Errorf("the guest has %d files and %d locks", opened, len(g.s.locks.files))
		}
	}
}

// TestI11_PoolsBoundAllOfTheirDirectories: what one directory of a pool takes no other gets, until it is given back or the
// directory is closed.
func TestI11_PoolsBoundAllOfTheirDirectories(t *testing.T) {
	t.Parallel()
	pool := NewPool()
	pool.most.nodes, pool.most.handles = 3, 2
	dir := t.TempDir()
	put(t, dir, map[string]string{"a": "", "b": "", "c": "", "d": ""})
	one := newGuest(t, dir, Options{Pool: pool})
	s, err := New(dir, Options{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	s.conn = silent{}
	two := &guest{t: t, s: s}
	a, b := one.must(one.walk("a")), one.must(one.walk("b"))
	c := two.must(two.walk("c"))
	_, err = two.walk("d")
	want(t, "a fourth file", err, unix.ENFILE)
	fh := one.must(one.open(a, unix.O_RDONLY))
	one.must(one.open(b, unix.O_RDONLY))
	_, err = two.open(c, unix.O_RDONLY)
	want(t, "a third handle", err, unix.EMFILE)
	if err := one.close(a, fh); err != nil {
		t.Fatal(err)
	}
	two.must(two.open(c, unix.O_RDONLY))
	one.forgetAll()
	two.must(two.walk("d"))
	one.must(one.walk("a"))
	_, err = one.walk("b")
	want(t, "a fourth file again", err, unix.ENFILE)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	one.forgetAll()
	if pool.nodes.Load() != 0 || pool.handles.Load() != 0 {
		t.Errorf("%d nodes and %d handles are left", pool.nodes.Load(), pool.handles.Load())
	}
}
