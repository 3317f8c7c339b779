package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// runDir is one sandbox's directory, locked by whoever holds lock open.
type runDir struct {
	id   string
	dir  string
	lock *os.File
}

// newRun makes and locks a directory for a new sandbox. Every process that inherits lock holds the lock; it is free when
// the last of them has ended, for any reason.
func newRun(h *Home) (*runDir, error) {
	var b [idBytes]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	id := "sb-" + hex.EncodeToString(b[:])
	// Made under a name that sweepRuns leaves alone and renamed once it is locked, so that a sweep by
	// another process never sees it unlocked.
	temp := filepath.Join(h.dir, state.RunsDir, "."+id)
	if err := os.Mkdir(temp, 0o700); err != nil {
		return nil, err
	}
	lock, err := state.LockDir(temp, os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, errors.Join(err, state.RemoveOwn(temp, state.RunForm))
	}
	dir := filepath.Join(h.dir, state.RunsDir, id)
	if err := os.Rename(temp, dir); err != nil {
		return nil, errors.Join(err, state.RemoveOwn(temp, state.RunForm), lock.Close())
	}
	return &runDir{id: id, dir: dir, lock: lock}, nil
}

// remove deletes the directory; a second call does nothing.
func (r *runDir) remove() error { return state.RemoveOwn(r.dir, state.RunForm) }
