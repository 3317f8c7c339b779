package rotate_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/rotate"
)

// TestPipesAreNotSetAside: a rename would take a pipe from its reader.
func TestPipesAreNotSetAside(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f := &rotate.File{Path: path, Max: 2, Keep: 1, Opener: func(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }}
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	n, err := f.Write([]byte("1\n2\n3\n"), line, func() error { return errors.New("it is set aside") })
	if n != 6 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestOpenNowNeverWaits for the reader of a pipe, and writes into none that nobody reads.
func TestOpenNowNeverWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range []int{os.O_WRONLY, os.O_RDWR | os.O_APPEND} {
		done := make(chan error, 1)
		go func() {
			f, err := rotate.OpenNow(pipe, flags)
			if err == nil {
				_ = f.Close()
			}
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, unix.ENXIO) {
				t.Errorf("a pipe that nobody reads from: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("it waits")
		}
	}
	f, err := rotate.OpenNow(filepath.Join(dir, "new"), os.O_WRONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v; want a file of its user alone", info.Mode(), err)
	}
}

// TestOpenGoesOn behind what is in the file, and Close closes as its Closer says, once.
func TestOpenGoesOn(t *testing.T) {
	t.Parallel()
	f := newFile(t, 4, 1)
	closed := 0
	f.Closer = func(file *os.File) error { closed++; return file.Close() }
	if err := errors.Join(f.Append([]byte("1\n2\n")), f.Close(), f.Close()); err != nil || closed != 1 {
		t.Fatalf("%v, closed %d times", err, closed)
	}
	if err := f.Open(); err != nil || f.Size != 4 {
		t.Fatalf("%d bytes, %v", f.Size, err)
	}
	if n, err := f.Write([]byte("3\n"), line, setAside(f)); n != 2 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if got := read(t, f); len(got) != 2 || got[0] != "1\n2\n" || got[1] != "3\n" {
		t.Errorf("files of %q: the full one was written to", got)
	}
}
