package rotate_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/rotate"
	"github.com/msb-project/msb/internal/rotate/rotatetest"
)

func line(b []byte) int { return bytes.IndexByte(b, '\n') + 1 }

func newFile(t *testing.T, limit int64, keep int) *rotate.File {
	t.Helper()
	f := &rotate.File{Path: filepath.Join(t.TempDir(), "log"), Max: limit, Keep: keep, Opener: func(path string) (*os.File, error) {
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	}}
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func setAside(f *rotate.File) func() error {
	return func() error { return errors.Join(f.SetAside(), f.Open()) }
}

// read is what each file holds, the oldest first.
func read(t *testing.T, f *rotate.File) (all []string) {
	t.Helper()
	for i := f.Keep + 1; i >= 0; i-- {
		b, err := os.ReadFile(rotate.Name(f.Path, i))
		if err == nil {
			all = append(all, string(b))
		}
	}
	return all
}

// TestFilesEndAtPieces: a piece is never cut, a file takes one at least, and the oldest file is deleted.
func TestFilesEndAtPieces(t *testing.T) { // not parallel: a bound of the process is set below
	f := newFile(t, 8, 2)
	for _, b := range []string{"1\n2\n", "3\n4\n5\n", "a longer one\n6\n", "7\n"} {
		if n, err := f.Write([]byte(b), line, setAside(f)); err != nil || n != len(b) {
			t.Fatal(n, err)
		}
	}
	want := []string{"5\n", "a longer one\n", "6\n7\n"}
	got := read(t, f)
	if len(got) != len(want) {
		t.Fatalf("files of %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("file %d holds %q, want %q", i, got[i], want[i])
		}
	}
}

// TestFailedRotationsOverwriteNothing: all files keep their names if the oldest can't be renamed.
func TestFailedRotationsOverwriteNothing(t *testing.T) { // not parallel: a bound of the process is set below
	f := newFile(t, 2, 3)
	for _, b := range []string{"1\n", "2\n", "3\n"} {
		if _, err := f.Write([]byte(b), line, setAside(f)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(rotate.Name(f.Path, 3), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Write([]byte("4\n"), line, setAside(f)); err == nil || n != 0 {
		t.Errorf("%d bytes, %v; want an error", n, err)
	}
	if got := read(t, f); len(got) != 3 || got[0] != "1\n" || got[1] != "2\n" || got[2] != "3\n" {
		t.Errorf("files of %q, want the three", got)
	}
}

// TestI12_FullDisksLeaveNoHalfPiece: what didn't fit is cut off, and what comes later follows the last whole one.
func TestI12_FullDisksLeaveNoHalfPiece(t *testing.T) { // not parallel: the bound is the process's
	f := newFile(t, 1000, 1)
	if err := f.Append([]byte("first\n")); err != nil {
		t.Fatal(err)
	}
	more := rotatetest.FullAt(t, 9)
	err := f.Append([]byte("second\n"))
	more()
	if !errors.Is(err, unix.EFBIG) {
		t.Fatalf("a full disk: %v, want EFBIG", err)
	}
	if err := f.Append([]byte("third\n")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, f); len(got) != 1 || got[0] != "first\nthird\n" || f.Size != 12 {
		t.Errorf("%q of %d bytes, want the first and the third", got, f.Size)
	}
}

// TestI12_FullDisksCutNoOtherFile: what another process wrote behind half a piece stays. The file is written
// without O_APPEND here, so that something is behind.
func TestI12_FullDisksCutNoOtherFile(t *testing.T) { // not parallel: the bound is the process's
	f := newFile(t, 1000, 1)
	const before = "first\n............\nlast\n"
	if err := os.WriteFile(f.Path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Opener = func(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }
	if err := errors.Join(f.Close(), f.Open()); err != nil {
		t.Fatal(err)
	}
	if err := f.Append([]byte("FIRST\n")); err != nil {
		t.Fatal(err)
	}
	more := rotatetest.FullAt(t, 9)
	err := f.Append([]byte("second\n"))
	more()
	if !errors.Is(err, unix.EFBIG) {
		t.Fatalf("a full disk: %v, want EFBIG", err)
	}
	if got := read(t, f); len(got) != 1 || got[0] != "FIRST\nsec"+before[9:] {
		t.Errorf("%q; what is behind was cut off", got)
	}
}
