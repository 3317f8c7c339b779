package clients

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	if b == nil {
		b = []byte{}
	}
	return b, err
}

// Changes reports whether there is anything to write.
func (c *Change) Changes() bool { return !bytes.Equal(c.Before, c.After) }

// Write writes the file, whole or not at all, after a copy of what it held. A file that changed since it was read is left
// as it is.
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
		mode = info.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o755); err != nil { //nolint:gosec // as clients make it
		return err
	}
	if c.Before != nil {
		if err := renameio.WriteFile(c.Path+BackupEnding, c.Before, mode, renameio.IgnoreUmask()); err != nil {
			return err
		}
	}
	return renameio.WriteFile(c.Path, c.After, mode, renameio.IgnoreUmask())
}
