package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/owned"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// sweepRuns removes the run directories that no live process holds. Several may run at once. What does not have a run's name,
// or holds what no run makes, is not msb's and stays.
func sweepRuns(h *Home) error {
	return sweepDir(h, state.RunsDir, func(runs *os.File, e fs.DirEntry) error {
		if runName.MatchString(e.Name()) || newRunName.MatchString(e.Name()) {
			return sweepRun(runs, e.Name())
		}
		return nil
	})
}

// sweepDir calls sweep for the entries of a directory of the home. It leaves what isn't msb's.
func sweepDir(h *Home, sub string, sweep func(dir *os.File, entry fs.DirEntry) error) error {
	dir, err := openHomeDir(h, sub)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := sweep(dir, e); err != nil && !errors.Is(err, owned.ErrForeign) && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("left-over sandbox %s: %w", e.Name(), err)
		}
	}
	return nil
}

// sweepRun never makes a lock: if another sweep has almost removed the directory, the new file would make that removal
// fail.
func sweepRun(runs *os.File, name string) error {
	dir, err := owned.Open(runs, name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if newRunName.MatchString(name) && !abandoned(dir) {
		return nil
	}
	lock, err := state.LockAt(dir, 0)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil // alive, or being swept
	case errors.Is(err, fs.ErrNotExist):
		// Removed by its owner or another sweep just now, or about to get its lock, unless it is old. The lock is
		// made first and removed last, so that a directory of a run without one is empty.
		if abandoned(dir) {
			return state.RemoveIn(runs, dir, name, owned.Files(func(string) bool { return false }))
		}
		return nil
	case err != nil:
		return err
	}
	defer func() { _ = lock.Close() }()
	if info, err := lock.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() != 0 {
		return errors.Join(err, fmt.Errorf("%w: %s", owned.ErrForeign, lock.Name()))
	}
	return state.RemoveIn(runs, dir, name, state.RunForm)
}

// sweepTrust removes the files that a kill in the middle of writing an approval left.
func sweepTrust(h *Home) error {
	err := sweepDir(h, trustDir, func(dir *os.File, e fs.DirEntry) error {
		name := e.Name()
		if !newTrustFile.MatchString(name) {
			return nil
		}
		var info unix.Stat_t
		err := unix.Fstatat(int(dir.Fd()), name, &info, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil || info.Mode&unix.S_IFMT != unix.S_IFREG || time.Since(time.Unix(info.Mtim.Unix())) <= newRunGrace {
			return err // another command may be writing it
		}
		return unix.Unlinkat(int(dir.Fd()), name, 0)
	})
	return state.UnlessGone(err)
}
