package image

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/owned"
)

// Directories of a Store.
const (
	disksDir = "disks" // one directory for each digest: the disk and its meta.json
	refsDir  = "refs"  // what each reference meant when it was asked last
	tmpDir   = "tmp"   // staging directories, each beside the lock of who fills it
	locksDir = "locks" // one lock for each digest that is being fetched
)

const (
	lockSuffix = ".lock"
	droppedDir = "dropped" // in a staging directory: the directory of a disk that is removed
)

// staging is a directory that becomes a disk's directory by one rename, or nothing.
type staging struct {
	dir  string
	lock *fileLock
}

func (s *Store) newStaging() (*staging, error) {
	dir := filepath.Join(s.dir, tmpDir, rand.Text())
	// The lock comes first: a directory without a held lock is a leftover.
	l, err := tryLock(dir + lockSuffix)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, fmt.Errorf("staging directory %s is taken", dir)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		l.release()
		return nil, fmt.Errorf("make a staging directory: %w", err)
	}
	return &staging{dir: dir, lock: l}, nil
}

// discard removes what was not published.
func (st *staging) discard() {
	if tmp, err := os.Open(filepath.Dir(st.dir)); err == nil {
		_ = removeStaging(tmp, filepath.Base(st.dir)) // the next Open tries again
		_ = tmp.Close()
	}
	st.lock.release()
}

// spool opens a file that has no name any more, so that even kill -9 frees it.
func (st *staging) spool() (*os.File, error) {
	f, err := os.CreateTemp(st.dir, "spool")
	if err != nil {
		return nil, fmt.Errorf("spool a layer: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("spool a layer: %w", err)
	}
	return f, nil
}

// publish makes the staging directory durable and moves it to its place.
func (st *staging) publish(to string) error {
	if err := syncDir(st.dir); err != nil {
		return err
	}
	if err := os.Rename(st.dir, to); err != nil {
		return fmt.Errorf("publish the disk: %w", err)
	}
	return syncDir(filepath.Dir(to))
}

// cleanStaging removes staging directories whose owner has ended. It leaves other directories alone.
func (s *Store) cleanStaging() error {
	root := filepath.Join(s.dir, tmpDir)
	tmp, err := os.OpenFile(root, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = tmp.Close() }()
	names, err := owned.Names(tmp)
	if err != nil {
		return fmt.Errorf("read %s: %w", root, err)
	}
	for _, name := range names {
		name = strings.TrimSuffix(name, lockSuffix)
		if !stagingName.MatchString(name) {
			continue
		}
		l, err := tryLock(filepath.Join(root, name) + lockSuffix)
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) {
			continue
		}
		if err != nil {
			return err
		}
		if l == nil {
			continue
		}
		err = removeStaging(tmp, name)
		l.release()
		if err != nil && !errors.Is(err, owned.ErrForeign) {
			return fmt.Errorf("remove a leftover: %w", err)
		}
	}
	return nil
}

func removeStaging(tmp *os.File, name string) error {
	dir, err := owned.Open(tmp, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(owned.Remove(tmp, dir, name, stagingForm, ""), dir.Close())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	return errors.Join(f.Sync(), f.Close())
}

// writeFileSync writes a new file durably.
func writeFileSync(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}
