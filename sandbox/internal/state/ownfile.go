package state

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// maxOwnFile bounds a file that msb wrote about a sandbox, in bytes: more than a policy with all its includes.
const maxOwnFile = 128 << 20

// ReadOwn reads a file that msb wrote. It follows no link and waits for nobody who writes: behind either is a file of
// somebody else.
func ReadOwn(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", path)
	}
	return io.ReadAll(io.LimitReader(f, maxOwnFile))
}

// CheckWritten refuses what a run would write to and msb did not make: through a link it would write over a file of
// somebody else, and at a pipe it would wait for ever.
func CheckWritten(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() && !e.Type().IsRegular() {
			return fmt.Errorf("%w: %s is no file; move it away", ErrState, filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// WriteJSON replaces a file of dir's in one rename.
func WriteJSON(dir, file string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, file), append(b, '\n'), 0o600, renameio.WithStaticPermissions(0o600))
}

func ReadJSON(dir, file string, v any) error {
	b, err := ReadOwn(filepath.Join(dir, file))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
