package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Sweep removes the run folders that no live process holds. Several may run at once. What is no folder
// isn't ours and stays.
func (h *Home) Sweep() error {
	entries, err := os.ReadDir(filepath.Join(h.dir, runsDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := sweepOne(filepath.Join(h.dir, runsDir, e.Name())); err != nil {
			return fmt.Errorf("left-over sandbox %s: %w", e.Name(), err)
		}
	}
	return nil
}

// sweepOne never makes a lock: in a folder that another sweep has all but removed, that would be a new
// file on which the other's removal fails.
func sweepOne(dir string) error {
	if filepath.Base(dir)[0] == '.' && !abandoned(dir) {
		return nil
	}
	lock, err := lockDir(dir, 0)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil // alive, or being swept
	case errors.Is(err, fs.ErrNotExist):
		if !abandoned(dir) {
			return nil // removed by its owner or another sweep just now
		}
	case err != nil:
		return err
	default:
		defer func() { _ = lock.Close() }()
	}
	err = removeRun(dir)
	if errors.Is(err, unix.ENOTEMPTY) {
		return nil // somebody writes into it still: a later sweep has it
	}
	return err
}

// removeRun deletes a run folder, its lock last: as long as anything is left, a sweep either finds the
// lock taken or takes it. What somebody else removed meanwhile is no error.
func removeRun(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return unlessGone(err)
	}
	var errs []error
	for _, e := range entries {
		if e.Name() != lockFile {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := unlessGone(os.Remove(filepath.Join(dir, lockFile))); err != nil {
		return err
	}
	return unlessGone(os.Remove(dir))
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// lockDir takes dir's lock without waiting; unix.EWOULDBLOCK tells that someone holds it. Without
// os.O_CREATE among flags, a folder that has no lock file is fs.ErrNotExist.
func lockDir(dir string, flags int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), flags|os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
