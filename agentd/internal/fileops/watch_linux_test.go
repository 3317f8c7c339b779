package fileops

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
)

// TestMovedDirectoriesReportNewPaths: what happened below it under the old name's watch, before the move was read,
// is not reported where it never was.
func TestMovedDirectoriesReportNewPaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{"/d/sub", "/dd"} {
		if err := os.MkdirAll(dir+d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	over := errors.New("over")
	started := false
	err := Watch(context.Background(), dir, true, func(r *agentpb.WatchResponse) error {
		if !started { // all of this lies in the kernel's queue before the first of it is read
			started = true
			return errors.Join(
				os.Rename(dir+"/d", dir+"/e"),
				os.WriteFile(dir+"/e/f", nil, 0o600),
				os.WriteFile(dir+"/e/sub/g", nil, 0o600),
				os.WriteFile(dir+"/dd/h", nil, 0o600), // its name only begins like that of d
				os.WriteFile(dir+"/last", nil, 0o600))
		}
		last := false
		for _, e := range r.GetEvents() {
			p := strings.TrimPrefix(string(e.GetPath()), dir)
			seen[e.GetKind().String()+p] = true
			last = last || p == "/last"
		}
		if last {
			return over
		}
		return nil
	})
	if !errors.Is(err, over) {
		t.Fatal(err)
	}
	for _, want := range []string{"KIND_REMOVED/d", "KIND_CREATED/e", "KIND_CREATED/e/f", "KIND_CREATED/e/sub", "KIND_CREATED/e/sub/g", "KIND_CREATED/dd/h"} {
		if !seen[want] {
			t.Errorf("%s is missing in %v", want, seen)
		}
	}
	for got := range seen {
		if strings.Contains(got, "/d/") {
			t.Errorf("%s: there is no such directory any more", got)
		}
	}
}

// TestI11_WatchedDirectoriesAreBounded. The twin has room for one more.
func TestI11_WatchedDirectoriesAreBounded(t *testing.T) {
	t.Parallel()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{in: os.NewFile(uintptr(fd), "inotify"), paths: map[int32]string{}}
	defer func() { _ = w.in.Close() }()
	for i := range int32(maxWatches - 1) {
		w.paths[-1-i] = ""
	}
	for _, full := range []bool{false, true} {
		if err := w.one(t.TempDir()); errors.Is(err, errTooManyDirs) != full || !full && err != nil {
			t.Errorf("full %t: %v", full, err)
		}
	}
}
