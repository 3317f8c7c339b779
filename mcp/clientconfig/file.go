package clientconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// maxFile bounds a configuration, in bytes: Claude Code's keeps its history too.
const maxFile = 64 << 20

// BackupEnding is added to the name of a file for what it held before.
const BackupEnding = ".msb-backup"

// read returns nil for a file that doesn't exist.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	}
	return b, err // never nil
}

// Changes reports whether there is anything to write.
func (c *Change) Changes() bool { return !bytes.Equal(c.Before, c.After) }

// Write writes the file, whole or not at all. What it held before msb came into it is in a copy beside it, which is kept
// until the file is that again. A file that changed since it was read, or that nobody may write, is left as it is.
func (c *Change) Write() error {
	if !c.Changes() {
		return nil
	}
	now, err := read(c.Path)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, c.Before) {
		return fmt.Errorf("%s changed meanwhile; run the command again", c.Path)
	}
	mode := os.FileMode(0o600) // clients keep tokens beside their servers
	if info, err := os.Stat(c.Path); err == nil {
		if mode = info.Mode().Perm(); mode&0o222 == 0 {
			return fmt.Errorf("%s is read-only, and is left as it is; make it writable (chmod u+w), and run the command again", c.Path)
		}
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o755); err != nil { //nolint:gosec // as clients make it
		return err
	}
	if err := c.keep(mode); err != nil {
		return err
	}
	if c.After == nil {
		if err := os.Remove(c.Path); err != nil {
			return err
		}
		_ = os.Remove(c.dir) // it stays if it holds something, and may be ""
		return nil
	}
	if err := put(c.Path, c.After, mode); err != nil {
		return err
	}
	if c.undo {
		return os.Remove(c.Path + BackupEnding)
	}
	return nil
}

// keep makes the backup, unless there is an older one of the same install or nothing to back up: a file that Install made
// isn't kept.
func (c *Change) keep(mode os.FileMode) error {
	if c.undo || c.again || c.Before == nil {
		return nil
	}
	if _, err := os.Lstat(c.Path + BackupEnding); err == nil && !c.backup {
		return nil
	}
	return put(c.Path+BackupEnding, c.Before, mode)
}

// put writes a file by way of a temporary one, whose name it keeps out of errors.
func put(path string, content []byte, mode os.FileMode) error {
	err := renameio.WriteFile(path, content, mode, renameio.IgnoreUmask())
	var of *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &of):
		err = of.Err
	case errors.As(err, &link):
		err = link.Err
	}
	if err != nil {
		return fmt.Errorf("%s can't be written: %w", path, err)
	}
	return nil
}
