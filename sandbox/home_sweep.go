package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/owned"
)

// Sweep removes the run directories that no live process holds. Several may run at once. What does not have a run's name,
// or holds what no run makes, is not msb's and stays.
func (h *Home) Sweep() error {
	return h.sweepDir(runsDir, func(runs *os.File, name string) error {
		if runName.MatchString(name) || newRunName.MatchString(name) {
			return sweepRun(runs, name)
		}
		return nil
	})
}

// sweepDir calls sweep for the names in a directory of the home. What turns out not to be msb's stays.
func (h *Home) sweepDir(sub string, sweep func(dir *os.File, name string) error) error {
	dir, err := h.openDir(sub)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	names, err := owned.Names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := sweep(dir, name); err != nil && !errors.Is(err, owned.ErrForeign) && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("left-over sandbox %s: %w", name, err)
		}
	}
	return nil
}

// sweepRun never makes a lock: in a directory that another sweep has all but removed, that would be a new
// file on which the other's removal fails.
func sweepRun(runs *os.File, name string) error {
	dir, err := owned.Open(runs, name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if newRunName.MatchString(name) && !abandoned(dir) {
		return nil
	}
	lock, err := lockAt(dir, 0)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil // alive, or being swept
	case errors.Is(err, fs.ErrNotExist):
		// Removed by its owner or another sweep just now, or about to get its lock, unless it is old. The lock is
		// made first and removed last, so that a directory of a run without one is empty.
		if abandoned(dir) {
			return removeIn(runs, dir, name, owned.Files(func(string) bool { return false }))
		}
		return nil
	case err != nil:
		return err
	}
	defer func() { _ = lock.Close() }()
	if info, err := lock.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() != 0 {
		return errors.Join(err, fmt.Errorf("%w: %s", owned.ErrForeign, lock.Name()))
	}
	return removeIn(runs, dir, name, runForm)
}

// removeIn deletes a sandbox's directory, its lock last: as long as anything is left, a sweep either finds the lock taken
// or takes it.
func removeIn(parent, dir *os.File, name string, form owned.Form) error {
	err := owned.Remove(parent, dir, name, form, lockFile)
	if errors.Is(err, unix.ENOTEMPTY) {
		return nil // somebody writes into it still: a later sweep has it
	}
	return err
}

// removeOwn is removeIn for who has the lock. What is not there is no error.
func removeOwn(path string, form owned.Form) error {
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return unlessGone(err)
	}
	defer func() { _ = parent.Close() }()
	dir, err := owned.Open(parent, filepath.Base(path))
	if err != nil {
		return unlessGone(err)
	}
	defer func() { _ = dir.Close() }()
	if err := removeIn(parent, dir, filepath.Base(path), form); err != nil {
		return fmt.Errorf("%s stays: %w", path, err)
	}
	return nil
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// lockDir is lockAt for a path.
func lockDir(path string, flags int) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return lockAt(dir, flags)
}

// lockAt takes dir's lock without waiting; unix.EWOULDBLOCK tells that someone holds it. Without os.O_CREATE among flags,
// a directory that has no lock file is fs.ErrNotExist.
func lockAt(dir *os.File, flags int) (*os.File, error) {
	path := filepath.Join(dir.Name(), lockFile)
	fd, err := unix.Openat(int(dir.Fd()), lockFile, flags|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%w: %s is no file", owned.ErrForeign, path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
