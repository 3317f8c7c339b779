package image

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Folders of a Store.
const (
	disksDir = "disks" // one folder for each digest: the disk and its meta.json
	refsDir  = "refs"  // what each reference meant when it was asked last
	tmpDir   = "tmp"   // staging folders, each beside the lock of who fills it
	locksDir = "locks" // one lock for each digest that is being fetched
)

const lockSuffix = ".lock"

// staging is a folder that becomes a disk's folder by one rename, or nothing.
type staging struct {
	dir  string
	lock *fileLock
}

func (s *Store) newStaging() (*staging, error) {
	dir := filepath.Join(s.dir, tmpDir, rand.Text())
	// The lock comes first: a folder without a held lock is a leftover.
	l, err := tryLock(dir + lockSuffix)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, fmt.Errorf("staging folder %s is taken", dir)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		l.release()
		return nil, fmt.Errorf("make a staging folder: %w", err)
	}
	return &staging{dir: dir, lock: l}, nil
}

// discard removes what was not published.
func (st *staging) discard() {
	_ = os.RemoveAll(st.dir)
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

// publish makes the staging folder durable and moves it to its place.
func (st *staging) publish(to string) error {
	if err := syncDir(st.dir); err != nil {
		return err
	}
	if err := os.Rename(st.dir, to); err != nil {
		return fmt.Errorf("publish the disk: %w", err)
	}
	return syncDir(filepath.Dir(to))
}

// cleanStaging removes staging folders whose owner is gone.
func (s *Store) cleanStaging() error {
	root := filepath.Join(s.dir, tmpDir)
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("read %s: %w", root, err)
	}
	for _, e := range entries {
		dir := filepath.Join(root, strings.TrimSuffix(e.Name(), lockSuffix))
		l, err := tryLock(dir + lockSuffix)
		if err != nil {
			return err
		}
		if l == nil {
			continue
		}
		err = os.RemoveAll(dir)
		l.release()
		if err != nil {
			return fmt.Errorf("remove a leftover: %w", err)
		}
	}
	return nil
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
