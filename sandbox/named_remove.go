package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/msb-project/msb/internal/owned"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// vmmGoneWait bounds the wait for the VMM of a supervisor that was killed: the kernel ends it at the same moment.
const vmmGoneWait = 10 * time.Second

// clearRun removes what a run that was killed left, once its VMM is gone too: two machines must never write to one
// disk. The caller holds the lock.
func clearRun(dir string) error {
	var r state.RunRecord
	if state.ReadJSON(dir, state.InfoFile, &r) == nil && r.VMM.PID != 0 {
		if err := r.VMM.Gone(vmmGoneWait); err != nil {
			return err
		}
	}
	for _, file := range []string{state.ControlSock, state.InfoFile} {
		if err := state.UnlessGone(os.Remove(filepath.Join(dir, file))); err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes the sandbox of that name and its disk. ErrRunning while it runs.
func (h *Home) Remove(ctx context.Context, name string) error { return Fail(h.remove(ctx, name)) }

func (h *Home) remove(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	run, err := h.lockSettled(ctx, name)
	if errors.Is(err, ErrRunning) {
		return fmt.Errorf("%w; `msb stop %s` first, or remove it with --force", err, name)
	}
	if err != nil {
		return err
	}
	return h.removeLocked(run)
}

// removeMade removes a sandbox whose first start failed, unless another command has started or removed it: lock is the
// file that it was made with.
func (h *Home) removeMade(ctx context.Context, name string, lock *os.File) error {
	run, err := h.lockSettled(ctx, name)
	if errors.Is(err, ErrRunning) || errors.Is(err, ErrNoSandbox) {
		return nil
	}
	if err != nil {
		return err
	}
	if !isAt(lock, filepath.Join(run.Dir, state.LockFile)) {
		return run.Lock.Close()
	}
	return h.removeLocked(run)
}

// removeLocked removes a sandbox whose lock the caller took, and lets go of the lock.
func (h *Home) removeLocked(run *Run) error {
	defer func() { _ = run.Lock.Close() }()
	name := run.ID
	if err := clearRun(run.Dir); err != nil {
		return err
	}
	if err := checkOwnForm(h, name); err != nil {
		return fmt.Errorf("sandbox %s stays: %w; move it away first", name, err)
	}
	gone := hiddenPath(h)
	if err := os.Rename(run.Dir, gone); err != nil { // from here on it isn't there, however far the removal comes
		return err
	}
	return state.RemoveOwn(gone, namedForm)
}

// checkOwnForm looks whether a sandbox's directory holds what msb did not make, which no removal may take along.
func checkOwnForm(h *Home, name string) error {
	all, err := openHomeDir(h, state.NamedDir)
	if err != nil {
		return err
	}
	defer func() { _ = all.Close() }()
	dir, err := owned.Open(all, name)
	if err != nil {
		return err
	}
	return errors.Join(owned.Check(dir, namedForm), dir.Close())
}

// sweepNamed removes what killed commands left half-made or half-removed.
func (h *Home) sweepNamed() error {
	return sweepDir(h, state.NamedDir, func(all *os.File, name string) error {
		if !hiddenName.MatchString(name) {
			return nil
		}
		dir, err := owned.Open(all, name)
		if err != nil {
			return err
		}
		defer func() { _ = dir.Close() }()
		if !abandoned(dir) {
			return nil
		}
		return state.RemoveIn(all, dir, name, namedForm)
	})
}
