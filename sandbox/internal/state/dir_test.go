package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestI13_RemovedLocksAreNotTaken takes the lock of a generation of caches, as a machine does. Who opened its file just before
// a prune removed it, locks a file that nobody else has: with the file open, CheckLock tells.
func TestI13_RemovedLocksAreNotTaken(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	dir := CachesPath(home, "g00000001")
	path := filepath.Join(dir, LockFile)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	lock, err := LockGeneration(home, "g00000001")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := CheckLock(lock, path); err != nil {
		t.Errorf("a lock that is there: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := CheckLock(lock, path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a lock that was removed: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckLock(lock, path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a lock that is another file now: %v", err)
	}
	again, err := LockGeneration(home, "g00000001")
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}
