package tartree

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLongFilesAreWrittenPastTheCache: their whole parts, on file systems that can, and their content is the same on those
// that can't, or say so late.
func TestLongFilesAreWrittenPastTheCache(t *testing.T) {
	t.Parallel()
	content := make([]byte, 2*copyBytes+777)
	for i := range content {
		content[i] = byte(i) ^ byte(i>>8)*7 ^ byte(i>>16)*31
	}
	direct := func(f *os.File, past bool) error {
		flag := 0
		if past {
			flag = unix.O_DIRECT
		}
		_, err := unix.FcntlInt(f.Fd(), unix.F_SETFL, flag)
		return err
	}
	late := func(f *os.File, past bool) error { // nothing of this disk is written from its second byte on
		if past {
			_, err := f.Seek(1, io.SeekStart)
			return errors.Join(err, direct(f, true))
		}
		return direct(f, false)
	}
	if f, err := os.Create(filepath.Join(t.TempDir(), "f")); err != nil || direct(f, true) != nil {
		t.Skipf("no O_DIRECT here: %v", err)
	} else if _, err := f.WriteAt(content[:copyBytes], 1); !errors.Is(err, unix.EINVAL) {
		t.Skipf("O_DIRECT that takes all: %v", err)
	}
	for name, tt := range map[string]struct {
		size  int
		past  func(f *os.File, past bool) error
		calls []bool
	}{
		"long":    {len(content), direct, []bool{true, false}},
		"whole":   {copyBytes, direct, []bool{true, false}},
		"short":   {copyBytes - 1, direct, nil},
		"late":    {len(content), late, []bool{true, false, false}},
		"refused": {len(content), func(*os.File, bool) error { return unix.EINVAL }, []bool{true}},
	} {
		dir := t.TempDir()
		out := &bytes.Buffer{}
		w := tar.NewWriter(out)
		add := func(name string, size int) {
			err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(size), Typeflag: tar.TypeReg})
			if err == nil {
				_, err = w.Write(content[:size])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		add("small", 9) // first: its buffer is too short for the others
		add("a", tt.size)
		add("b", tt.size) // is another file's neighbour, whatever was read
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		var calls []bool
		r, err := Unpack(t.Context(), out, openRoot(t, dir), UnpackOptions{PastCache: func(f *os.File, past bool) error {
			if _, err := os.Lstat(dir + "/a"); err != nil { // it is the first that is written
				calls = append(calls, past)
			}
			return tt.past(f, past)
		}})
		if err != nil || r.Bytes != int64(9+2*tt.size) || !slices.Equal(calls, tt.calls) {
			t.Errorf("%s: %v, %d bytes, past the cache: %v, want %v", name, err, r.Bytes, calls, tt.calls)
		}
		wantText(t, dir+"/small", string(content[:9]))
		wantText(t, dir+"/a", string(content[:tt.size]))
		wantText(t, dir+"/b", string(content[:tt.size]))
	}
}
