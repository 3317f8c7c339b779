package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/internal/owned"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// vmmGoneWait bounds the wait for the VMM of a supervisor that was killed: the kernel ends it at the same moment.
const vmmGoneWait = 10 * time.Second

// Each command looks at sweepAll sandboxes and at one of sweepTurns of the others: a file of each has to be read, which of
// all of them would take longer than most commands.
const sweepAll, sweepTurns = 32, 512

// sweepsNow reports whether a command whose turn it is looks at the sandbox that comes behind seen others.
func sweepsNow(seen, turn int) bool { return seen < sweepAll || seen%sweepTurns == turn }

// clearRun removes what a killed run left, after its VMM has ended too: two machines must never write to one disk. The
// caller holds the lock.
func clearRun(h *Home, dir string) error {
	var r state.RunRecord
	limit := cmp.Or(h.gone, vmmGoneWait)
	if state.ReadJSON(dir, state.InfoFile, &r) == nil && r.VMM.PID != 0 {
		if err := r.VMM.Gone(limit); err != nil {
			return err
		}
	}
	if disk, err := state.LockDisk(filepath.Join(dir, state.UpperDisk), limit); err == nil { // it may not be recorded yet
		_ = disk.Close()
	} else if errors.Is(err, ErrRunning) {
		return err
	}
	for _, file := range []string{state.ControlSock, state.PeerSock, state.InfoFile} {
		if err := state.UnlessGone(os.Remove(filepath.Join(dir, file))); err != nil {
			return err
		}
	}
	return state.RemoveHalfWritten(dir)
}

// Remove deletes the sandbox of that name and its disk. ErrRunning while it runs.
func (h *Home) Remove(ctx context.Context, name string) error { return Fail(removeNamed(ctx, h, name)) }

func removeNamed(ctx context.Context, h *Home, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	run, err := lockSettled(ctx, h, name)
	if errors.Is(err, ErrRunning) {
		return fmt.Errorf("%w; `msb stop %s` first, or remove it with --force", err, name)
	}
	if err != nil {
		return err
	}
	return removeLocked(h, run)
}

// removeMade removes a sandbox whose first start failed, unless another command has started or removed it. lock is the file
// that it was made with.
func removeMade(ctx context.Context, h *Home, name string, lock *os.File) error {
	run, err := lockSettled(ctx, h, name)
	if errors.Is(err, ErrRunning) || errors.Is(err, ErrNoSandbox) {
		return nil
	}
	if err != nil {
		return err
	}
	if !isAt(lock, filepath.Join(run.dir, state.LockFile)) {
		return run.lock.Close()
	}
	return removeLocked(h, run)
}

// removeLocked removes a sandbox whose lock the caller holds, and releases the lock.
func removeLocked(h *Home, run *runDir) error {
	defer func() { _ = run.lock.Close() }()
	if err := clearRun(h, run.dir); err != nil {
		return err
	}
	if st, err := loadStored(h, run.id); err == nil { // a damaged sandbox can be removed, and one on a full disk
		_ = logEvent(st, run.dir, audit.SandboxRemove, "")
	}
	return state.RemoveNamed(h.dir, run.id)
}

// sweepNamed removes what killed commands left half-made or half-removed, and sandboxes of AutoRemove whose run is over.
func sweepNamed(h *Home) error {
	seen, turn := -1, rand.IntN(sweepTurns)
	before, listed := time.Now(), nameList{at: stampOf(unix.AT_FDCWD, filepath.Join(h.dir, state.NamedDir))}
	err := sweepDir(h, state.NamedDir, func(all *os.File, e fs.DirEntry) error {
		name := e.Name()
		if CheckName(name) == nil {
			if e.IsDir() {
				listed.names = append(listed.names, name)
			}
			if seen++; !sweepsNow(seen, turn) {
				return nil
			}
			return sweepTemporary(h, name)
		}
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
		lock, err := state.LockAt(dir, 0)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil // its disk is being copied, or it is being removed
		}
		if err == nil {
			defer func() { _ = lock.Close() }()
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return state.RemoveIn(all, dir, name, state.NamedForm)
	})
	if listed.at != (stamp{}) && listed.at.settled(before, cmp.Or(h.settled, indexSettled)) {
		slices.Sort(listed.names)
		h.listed = listed
	}
	return err
}

// sweepTemporary removes a sandbox of Config.AutoRemove whose supervisor was killed: its run is over, but the run's record
// is still there.
func sweepTemporary(h *Home, name string) error {
	dir := namedPath(h, name)
	if !wasTemporary(dir) {
		return nil
	}
	run, err := lockNamed(h, name)
	if errors.Is(err, ErrRunning) || errors.Is(err, ErrNoSandbox) {
		return nil // or about to be removed
	}
	if err != nil {
		return err
	}
	if !wasTemporary(dir) { // looked at under the lock: another has the name now
		return run.lock.Close()
	}
	return removeLocked(h, run)
}

// wasTemporary reports whether a run's record says that the sandbox is removed with it, and the machine has ended.
func wasTemporary(dir string) bool {
	var r state.RunRecord
	switch err := state.ReadJSON(dir, state.InfoFile, &r); {
	case err == nil:
		return r.AutoRemove && (r.VMM.PID == 0 || r.VMM.Gone(0) == nil)
	case errors.Is(err, fs.ErrNotExist): // whoever made it was killed before it had a machine
		info, err := os.Stat(dir)
		st, readErr := state.ReadStored(dir, filepath.Base(dir))
		return err == nil && readErr == nil && st.AutoRemove && time.Since(info.ModTime()) > newRunGrace
	}
	return false
}
