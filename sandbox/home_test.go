package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// newHome opens a state directory that isn't there yet, so that its mode is ours and not the umask's.
func newHome(t *testing.T) *Home {
	t.Helper()
	h, err := OpenHome(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// left makes the directory of a sandbox whose supervisor was killed.
func left(t *testing.T, h *Home) string {
	t.Helper()
	run, err := newRun(h)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{state.ConsoleLog, state.AuditLog, state.UpperDisk} {
		if err := os.WriteFile(filepath.Join(run.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run.lock.Close(); err != nil {
		t.Fatal(err)
	}
	return run.dir
}

func there(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// Two sweeps at once failed with "directory not empty": one removed the lock first, and the other made
// a new one in the directory that was going.
func TestI13_ConcurrentSweepsSucceed(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for range 30 {
		var dirs []string
		for range 4 {
			dirs = append(dirs, left(t, h))
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := sweepRuns(h); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, dir := range dirs {
			if there(t, dir) {
				t.Fatalf("%s is left", dir)
			}
		}
	}
}

func TestI13_SweepLeavesTheLivingAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	run, err := newRun(h)
	if err != nil {
		t.Fatal(err)
	}
	fresh, old := filepath.Join(h.dir, state.RunsDir, "sb-00000000000f"), filepath.Join(h.dir, state.RunsDir, "sb-00000000000d")
	freshTemp, oldTemp := filepath.Join(h.dir, state.RunsDir, ".sb-00000000000f"), filepath.Join(h.dir, state.RunsDir, ".sb-00000000000d")
	past := time.Now().Add(-2 * newRunGrace)
	for _, dir := range []string{fresh, old, freshTemp, oldTemp} { // all without a lock
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	locking := filepath.Join(h.dir, state.RunsDir, ".sb-00000000000e") // its owner has made the lock, and doesn't hold it yet
	dir(map[string]maker{state.LockFile: file("")})(t, locking)
	must(t, os.Chtimes(locking, time.Now(), time.Now()))
	for _, dir := range []string{run.dir, old, oldTemp} {
		if err := os.Chtimes(dir, past, past); err != nil {
			t.Fatal(err)
		}
	}
	if err := sweepRuns(h); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{run.dir: true, fresh: true, freshTemp: true, locking: true, old: false, oldTemp: false} {
		if got := there(t, dir); got != want {
			t.Errorf("%s there: %v, want %v", filepath.Base(dir), got, want)
		}
	}
	if there(t, filepath.Join(fresh, state.LockFile)) {
		t.Error("the sweep made a lock in a directory that had none")
	}
	if err := errors.Join(run.lock.Close(), run.remove(), run.remove()); err != nil {
		t.Errorf("removing twice: %v", err)
	}
	if there(t, run.dir) {
		t.Error("the directory is still there after Remove")
	}
}

// A .DS_Store or an editor's file among the runs made every command fail.
func TestI13_StrayFilesStopNoSweep(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	runs := filepath.Join(h.dir, state.RunsDir)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(runs, ".DS_Store"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(runs, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenHome(h.dir); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(runs, ".DS_Store"), filepath.Join(runs, "link"), outside} {
		if !there(t, path) {
			t.Errorf("%s is gone", path)
		}
	}
}

func TestI12_WritableHomesAreRefused(t *testing.T) {
	t.Parallel()
	for _, mode := range []os.FileMode{0o770, 0o707, 0o777} {
		for _, sub := range []string{"", imagesDir, state.KernelDir, guestDir, state.RunsDir, state.KeptDir} {
			h := newHome(t)
			dir := filepath.Join(h.dir, sub)
			if err := os.Chmod(dir, mode); err != nil {
				t.Fatal(err)
			}
			_, err := OpenHome(h.dir)
			if !errors.Is(err, ErrHome) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "chmod go-w") {
				t.Errorf("%q with mode %o: %v, want ErrHome, the directory and the remedy", sub, mode, err)
			}
		}
	}
	h := newHome(t)
	if err := os.Chmod(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenHome(h.dir); err != nil {
		t.Errorf("others may read: %v", err)
	}
	if err := checkOurs(h.dir, os.Geteuid()+1); !errors.Is(err, ErrHome) || !strings.Contains(err.Error(), EnvHome) {
		t.Errorf("another user's directory: %v, want ErrHome and the remedy", err)
	}
}

func TestI14_LinkedLocksAreNotFollowed(t *testing.T) {
	t.Parallel()
	dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	if err := os.Symlink(target, filepath.Join(dir, state.LockFile)); err != nil {
		t.Fatal(err)
	}
	if f, err := state.LockDir(dir, os.O_CREATE); err == nil {
		_ = f.Close()
		t.Error("the link was opened")
	}
	if there(t, target) {
		t.Error("a file was made where the link leads")
	}
}

// TestHalfWrittenApprovalsAreSwept: what a kill left in the middle of msb policy trust goes, an approval and what is being
// written stay.
func TestHalfWrittenApprovalsAreSwept(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	policy := filepath.Join(t.TempDir(), "p.toml")
	must(t, h.Trust().Approve(policy, nil))
	_, at, err := approvalOf(h, policy)
	must(t, err)
	old, now := filepath.Join(filepath.Dir(at), "."+filepath.Base(at)+"123"), filepath.Join(filepath.Dir(at), "."+filepath.Base(at)+"124")
	foreign := filepath.Join(filepath.Dir(at), ".notes")
	past := time.Now().Add(-2 * newRunGrace)
	for _, path := range []string{old, now, foreign} {
		must(t, os.WriteFile(path, nil, 0o600))
	}
	for _, path := range []string{old, foreign, at} {
		must(t, os.Chtimes(path, past, past))
	}
	_, err = OpenHome(h.Dir())
	must(t, err)
	for path, want := range map[string]bool{old: false, now: true, foreign: true, at: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
}
