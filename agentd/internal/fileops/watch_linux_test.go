package fileops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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

// watched are the events of a watch until one at last, and the messages they came in.
func watched(t *testing.T, p string, recursive bool, do func() error, last func(*agentpb.WatchResponse) bool) (all []*agentpb.WatchResponse) {
	t.Helper()
	over, started := errors.New("over"), false
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := Watch(ctx, p, recursive, func(r *agentpb.WatchResponse) error {
		if !started {
			started = true
			return do()
		}
		if all = append(all, r); last(r) {
			return over
		}
		return nil
	})
	if !errors.Is(err, over) {
		t.Fatal(err)
	}
	return all
}

// TestLostEventsAreTold: those that the kernel drops, and those of a directory that came with too many files.
func TestLostEventsAreTold(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || most > 1<<17 {
		t.Skipf("a queue of %d events, %v", most, err)
	}
	dir := t.TempDir()
	var files [2]*os.File
	for i := range files { // the kernel takes two events alike for one
		if files[i], err = os.Create(fmt.Sprintf("%s/%d", dir, i)); err != nil {
			t.Fatal(err)
		}
		defer files[i].Close()
	}
	watched(t, dir, false, func() error {
		for range most {
			for _, f := range files {
				if _, err := f.WriteAt([]byte("x"), 0); err != nil {
					return err
				}
			}
		}
		return nil
	}, func(r *agentpb.WatchResponse) bool { return r.GetOverflow() })
	out := &agentpb.WatchResponse{}
	for range maxEvents + 100 {
		note(out, agentpb.WatchEvent_KIND_CREATED, "/many")
	}
	events, told := 0, false
	if err := sendEvents(out, func(r *agentpb.WatchResponse) error {
		if n := len(r.GetEvents()); n > eventBatch {
			t.Errorf("%d events are in a message", n)
		}
		events, told = events+len(r.GetEvents()), r.GetOverflow()
		return nil
	}); err != nil || events != maxEvents || !told {
		t.Errorf("%d events, told of others: %t, %v", events, told, err)
	}
}

// TestWatchedLinksAreNotFollowed: the link itself is what is watched, until it is removed.
func TestWatchedLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := dir + "/link"
	if err := errors.Join(os.Mkdir(dir+"/d", 0o700), os.Symlink("d", link)); err != nil {
		t.Fatal(err)
	}
	removed := func(e *agentpb.WatchEvent) bool { return e.GetKind() == agentpb.WatchEvent_KIND_REMOVED }
	all := watched(t, link, true, func() error {
		return errors.Join(os.WriteFile(dir+"/d/f", nil, 0o600), os.Remove(dir+"/d/f"), os.Remove(link))
	}, func(r *agentpb.WatchResponse) bool { return slices.ContainsFunc(r.GetEvents(), removed) })
	for _, r := range all {
		for _, e := range r.GetEvents() {
			if string(e.GetPath()) != link {
				t.Errorf("%v of %s", e.GetKind(), e.GetPath())
			}
		}
	}
}

// TestI11_RemovedDirectoriesCountNoMore among those that are watched.
func TestI11_RemovedDirectoriesCountNoMore(t *testing.T) {
	t.Parallel()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{in: os.NewFile(uintptr(fd), "inotify"), paths: map[int32]string{}}
	defer func() { _ = w.in.Close() }()
	dir := t.TempDir() + "/d"
	if err := errors.Join(os.Mkdir(dir, 0o700), w.one(dir), os.Remove(dir)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for len(w.paths) > 0 {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			break // that was all
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.events(buf[:n]); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.paths) > 0 {
		t.Errorf("%v", w.paths)
	}
}
