package state

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// TestI13_LocksBelongToWhatIsThere: volumes of one name come and go, and so does a generation of caches. Whoever gets the
// lock has the current one's: a lock file that was opened before its directory was removed excludes nobody.
func TestI13_LocksBelongToWhatIsThere(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		path func(home string) string
		lock func(home string) (*os.File, error)
	}{
		"a volume": {
			func(home string) string { return VolumePath(home, "data") },
			func(home string) (*os.File, error) { return LockVolume(home, "data", false) },
		},
		"a generation": {
			func(home string) string { return CachesPath(home, "g00000001") },
			func(home string) (*os.File, error) { return LockGeneration(home, "g00000001") },
		},
	} {
		home := t.TempDir()
		dir := c.path(home)
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var stop atomic.Bool
		var number atomic.Int64
		for range 3 {
			all.Go(func() {
				for !stop.Load() {
					lock, err := c.lock(home)
					if err != nil {
						runtime.Gosched()
						continue
					}
					if CheckLock(lock, filepath.Join(dir, LockFile)) != nil {
						t.Errorf("the lock is that of %s that was removed", what)
						stop.Store(true)
					}
					gone := filepath.Join(home, "gone"+strconv.FormatInt(number.Add(1), 10))
					if err := os.Rename(dir, gone); err != nil && !stop.Load() {
						t.Error(err)
					}
					_ = os.RemoveAll(gone)
					_ = lock.Close() // nothing was written to it
				}
			})
		}
		for i := range 200 {
			next := filepath.Join(home, "next"+strconv.Itoa(i))
			if err := os.Mkdir(next, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(next, LockFile), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for os.Rename(next, dir) != nil && !stop.Load() { // until the one before is removed
				runtime.Gosched()
			}
		}
		stop.Store(true)
		all.Wait()
	}
}
