package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestI14_NoCopyReplacesADevice: as root a copy put a file in the place of /dev/null. The twin is a regular file.
func TestI14_NoCopyReplacesADevice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo, file, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	must(t, unix.Mkfifo(fifo, 0o600))
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Symlink("/dev/null", link))
	for dst, want := range map[string]error{"/dev/null": ErrCopy, fifo: ErrCopy, link: ErrCopy, file: nil} {
		st, err := os.Stat(dst)
		must(t, err)
		if _, err := targetOf("/x", "x", false, dst, st); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", dst, err, want)
		}
	}
}
