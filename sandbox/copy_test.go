package sandbox

import (
	"errors"
	"io/fs"
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

// TestI14_NoCopyFollowsALink: a guest that may write into the directory could lead a copy to any file of the user's; and as
// root a copy put a file in the place of the link /dev/stdout. The twins are a file and a link to a directory.
func TestI14_NoCopyFollowsALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Symlink("file", filepath.Join(dir, "link")))
	must(t, os.Symlink("nothing", filepath.Join(dir, "dangling")))
	must(t, os.Symlink(".", filepath.Join(dir, "dir")))
	for name, want := range map[string]error{"link": ErrCopy, "dangling": ErrCopy, "file": nil, "dir": nil, "nothing": nil} {
		if _, err := existingHere(filepath.Join(dir, name)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// TestCopiesGoWhereCpPutsThem compares with cp(1): a directory that is there is copied into, contents are copied over.
func TestCopiesGoWhereCpPutsThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	must(t, os.WriteFile(file, nil, 0o600))
	stat := func(path string) fs.FileInfo {
		st, err := os.Stat(path)
		must(t, err)
		return st
	}
	for _, tc := range []struct {
		src    string
		srcDir bool
		dst    string
		there  fs.FileInfo
		want   target
		bad    bool
	}{
		{"/src/x", false, "/d", stat(dir), target{"/d", "x"}, false},
		{"/src/x", true, "/d", stat(dir), target{"/d", "x"}, false},
		{"/src/x/.", true, "/d", stat(dir), target{"/d", "."}, false},
		{".", true, "/d", stat(dir), target{"/d", "."}, false},
		{"/", true, "/d", stat(dir), target{"/d", "."}, false},
		{"/src/x/.", false, "/d", stat(dir), target{"/d", "x"}, false},
		{"/src/x", false, "/d/f", stat(file), target{"/d", "f"}, false},
		{"/src/x", true, "/d/f", stat(file), target{}, true},
		{"/src/x", false, "/d/f/", stat(file), target{}, true},
		{"/src/x", false, "/d/new", nil, target{"/d", "new"}, false},
		{"/src/x", false, "/d/new/", nil, target{}, true},
		{"/src/x", true, "/d/new/", nil, target{"/d", "new"}, false},
		{"/src/x", true, "/d/new", nil, target{"/d", "new"}, false},
	} {
		got, err := targetOf(tc.src, "x", tc.srcDir, tc.dst, tc.there)
		if got != tc.want || errors.Is(err, ErrCopy) != tc.bad || (err != nil) != tc.bad {
			t.Errorf("%+v: %+v, %v", tc, got, err)
		}
	}
}
