package cow

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// one is the only change of the guest's layer.
func (w *world) one() *Change {
	w.t.Helper()
	all := w.compare()
	if len(all) != 1 {
		w.t.Fatalf("%d changes: %+v", len(all), all)
	}
	return &all[0]
}

// TestModesAloneAreChanged: of a file whose content stays, its permissions are taken over as they are, and it is the same file.
func TestModesAloneAreChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"tool": "x"})
	w.must(os.Chmod(w.top+"/tool", 0o755))
	w.see()
	before := w.tree.opts.Base["tool"]
	w.guest("tool", "x").Mode = 0o640
	c := w.one()
	if c.Kind != Mode || c.Old.Permissions != "0755" || c.New.Permissions != "0640" || c.Refused(nothing) != nil {
		t.Errorf("%+v", c)
	}
	if text, err := w.tree.Diff(t.Context(), c); err != nil || text != nil {
		t.Errorf("of its text is shown %q, %v", text, err)
	}
	w.must(w.tree.Apply(t.Context(), c, nothing))
	info, err := os.Stat(w.top + "/tool")
	if err != nil || info.Mode() != 0o640 || fileOf(info).Inode != before.Inode {
		t.Errorf("%v, %v; want the same file with mode 0640", info, err)
	}
}

// TestI14_NewFilesHaveTheUsersMask, but what replaces a file has that one's permissions.
func TestI14_NewFilesHaveTheUsersMask(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"team": "x", "link": "->team"})
	w.must(errors.Join(os.Chmod(w.top+"/team", 0o666), os.Mkdir(w.top+"/own", 0o777), os.WriteFile(w.top+"/own/f", nil, 0o666)))
	w.see()
	for _, name := range []string{"team", "link", "new"} {
		w.guest(name, "other").Mode = 0o666
	}
	w.guest("dir/", "").Mode = fs.ModeDir | 0o777
	if errs := w.apply(w.compare()); len(errs) > 0 {
		t.Fatal(errs)
	}
	for name, as := range map[string]string{"link": "own/f", "new": "own/f", "dir": "own"} {
		got, err := os.Lstat(w.top + "/" + name)
		w.must(err)
		if want, err := os.Lstat(w.top + "/" + as); err != nil || got.Mode() != want.Mode() {
			t.Errorf("%s has mode %v, want %v, %v", name, got.Mode(), want.Mode(), err)
		}
	}
	if got, err := os.Lstat(w.top + "/team"); err != nil || got.Mode() != 0o666 {
		t.Errorf("what the whole team may write has mode %v, %v", got.Mode(), err)
	}
}

// TestI14_EveryNewExecutableBitIsRefused: one of the group's, and a file in the place of a directory, whose bits mean something else.
func TestI14_EveryNewExecutableBitIsRefused(t *testing.T) {
	t.Parallel()
	for mode, refused := range map[fs.FileMode]bool{0o644: false, 0o654: true, 0o645: true, 0o744: true} {
		for _, over := range []string{"f", "d/"} {
			w := newWorld(t, map[string]string{over: ""})
			w.guest(strings.TrimSuffix(over, "/"), "guest").Mode = mode
			r := w.one().Refused(nothing)
			if (r != nil) != refused || r != nil && r.Name != refusedExec {
				t.Errorf("%o over %s: %+v", mode, over, r)
			}
		}
	}
}

// TestI14_DirectoriesThatHoldMoreStay: what the host puts into one, or what no copy can have, is not removed with it.
func TestI14_DirectoriesThatHoldMoreStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"dir/f": "x"})
	w.guest("dir", "gone")
	all := w.compare()
	w.host("dir/of the host", "y")
	if errs := w.apply(all); errs["dir"] == nil {
		t.Error("the directory is gone")
	}
	w.holds(map[string]string{"dir/": "", "dir/of the host": "y"})

	w = newWorld(t, map[string]string{"dir/f": "x"})
	w.must(unix.Mkfifo(w.top+"/dir/fifo", 0o600))
	w.guest("dir", "gone")
	if errs := w.apply(w.compare()); !errors.Is(errs["dir"], ErrRefused) {
		t.Errorf("with a FIFO in it: %v", errs)
	}
	if _, err := os.Lstat(w.top + "/dir/fifo"); err != nil {
		t.Error(err)
	}
}

// TestI14_HostsChangesAreSeenByTheirCtime: whoever puts the time of the last change back has changed the file all the same.
func TestI14_HostsChangesAreSeenByTheirCtime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"edit": "one"})
	before, err := os.Stat(w.top + "/edit")
	w.must(err)
	w.guest("edit", "guest")
	for now := before; fileOf(now).Changed == fileOf(before).Changed; { // the clock of ctimes has ticks
		w.must(errors.Join(os.WriteFile(w.top+"/edit", []byte("two"), 0o644), os.Chtimes(w.top+"/edit", before.ModTime(), before.ModTime())))
		now, err = os.Stat(w.top + "/edit")
		w.must(err)
	}
	if r := w.one().Refused(nothing); r == nil || r.Name != refusedChanged {
		t.Errorf("%+v", r)
	}
}

// TestDiffShowsNoBytes that are no text, in either version, and nothing that Apply would not write.
func TestDiffShowsNoBytes(t *testing.T) {
	t.Parallel()
	for _, v := range [][2]string{{"a\x00b", "text"}, {"text", "a\x00b"}, {"\xff\xfe", "text"}, {"text", "\xff"}} {
		w := newWorld(t, map[string]string{"f": v[0]})
		w.guest("f", v[1])
		if text, err := w.tree.Diff(t.Context(), w.one()); text != nil || err != nil {
			t.Errorf("%q to %q: %q, %v", v[0], v[1], text, err)
		}
	}
	w := newWorld(t, nil)
	w.guest("grown", "one\ntwo\n").Size = 4
	if text, err := w.tree.Diff(t.Context(), w.one()); !errors.Is(err, ErrChanged) {
		t.Errorf("of a file that grows: %q, %v", text, err)
	}
}

// TestRoomIsCounted to the byte.
func TestRoomIsCounted(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]error{3: nil, 4: syscall.ENOSPC} {
		w := newWorld(t, nil)
		w.room = 3
		w.guest("f", "guest"[:size])
		if err := w.tree.Apply(t.Context(), w.one(), nothing); !errors.Is(err, want) {
			t.Errorf("%d bytes where there is room for 3: %v", size, err)
		}
	}
}

func TestComparisonsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"dir/a": "", "dir/b": ""})
	ctx, cancel := context.WithCancel(t.Context())
	w.guest("dir", "gone")
	w.tree.opts.Hidden = func(p string) bool {
		if p == "dir/a" {
			cancel() // in the middle of what is removed
		}
		return false
	}
	if _, err := w.tree.Compare(ctx, w.layer); !errors.Is(err, context.Canceled) {
		t.Errorf("of a directory that the guest removed: %v", err)
	}
	w.layer = nil
	w.guest("new", "")
	if _, err := w.tree.Compare(ctx, w.layer); !errors.Is(err, context.Canceled) {
		t.Errorf("of a list: %v", err)
	}
}

func TestI11_ChangesAreBounded(t *testing.T) {
	t.Parallel()
	c := &comparison{changes: make([]Change, maxChanges-1)}
	if err := c.add(Change{Path: "last"}); err != nil {
		t.Error(err)
	}
	if err := c.add(Change{Path: "more"}); !errors.Is(err, errMany) || len(c.changes) != maxChanges {
		t.Errorf("%d changes, %v", len(c.changes), err)
	}
}

// TestWhatCannotBeComparedDiffers: a file of the guest that is gone meanwhile, and one of the host that may not be read.
func TestWhatCannotBeComparedDiffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"f": "one"})
	w.guest("f", "two")
	delete(w.content, "f")
	if c := w.one(); c.Kind != Modified {
		t.Errorf("gone: %+v", c)
	}

	w = newWorld(t, map[string]string{"f": "one"})
	w.must(os.Chmod(w.top+"/f", 0))
	w.guest("f", "two")
	if os.Geteuid() == 0 { // takes the rights over files from root, in this thread
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		w.must(unix.Setfsuid(1000))
		defer func() { _ = unix.Setfsuid(0) }()
	}
	all, err := w.tree.Compare(t.Context(), w.layer)
	if err != nil || len(all) != 1 || all[0].Kind != Modified {
		t.Errorf("unreadable: %+v, %v", all, err)
	}
}

// TestHiddenFilesAreNoChange if the guest has removed one of the name: it never saw the host's.
func TestHiddenFilesAreNoChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{".env": "KEY"})
	w.hidden = []string{".env"}
	w.guest(".env", "gone")
	if all := w.compare(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

func TestWithinIsByElements(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{".": true, "src": true, "src/a": true, "src/a/b": false, "sr": false, "src/": false, "s": false, "src/aa": false} {
		if got := (&Change{Path: "src/a"}).Within(in); got != want {
			t.Errorf("src/a within %q: %t", in, got)
		}
	}
}

// TestI14_OpenedFilesAreTheOnesThatWereSeen: neither a link nor a FIFO that comes in its place is opened.
func TestI14_OpenedFilesAreTheOnesThatWereSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"seen": "x", "other": "y", "link": "->other"})
	w.must(unix.Mkfifo(w.top+"/fifo", 0o600))
	seen := w.tree.opts.Base["seen"]
	for name, want := range map[string]bool{"seen": true, "other": false, "link": false, "fifo": false} {
		done := make(chan error, 1)
		go func() {
			f, err := w.tree.openHost(name, seen)
			if err == nil {
				err = f.Close()
			}
			done <- err
		}()
		select {
		case err := <-done:
			if (err == nil) != want || name == "other" && !errors.Is(err, ErrChanged) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s is waited for", name)
		}
	}
}

// TestI14_RecordsAreTheUsersAlone, and are neither read nor written through links.
func TestI14_RecordsAreTheUsersAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, link, fifo := filepath.Join(dir, "target"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	for range 2 { // new, and continued
		r := record(t, target)
		r.Shown("f", File{Size: 1}, true)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(target); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
	before, err := os.ReadFile(target)
	if err := errors.Join(err, os.Symlink(target, link), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	if base, err := ReadBase(link); err == nil {
		t.Errorf("read through a link: %v", base)
	}
	if err := appendTo(link, "g", File{}); err == nil {
		t.Error("written through a link")
	}
	if after, err := os.ReadFile(target); err != nil || !slices.Equal(before, after) {
		t.Errorf("%q, %v", after, err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _, _ = ReadBase(fifo) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("a FIFO is waited for")
	}
}

// TestTheFirstLookCounts until the file is opened, and what was opened counts from then on, also if an earlier run knew it so.
func TestTheFirstLookCounts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "base")
	one, two := File{Mode: 0o100644, Size: 1}, File{Mode: 0o100644, Size: 2}
	r := record(t, path)
	r.Shown("looked", one, false)
	r.Shown("looked", two, false)
	r.Shown("again", one, true)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = record(t, path)
	r.Shown("again", two, false)
	r.Shown("again", one, true)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if base, err := ReadBase(path); err != nil || base["looked"] != one || base["again"] != one {
		t.Errorf("%+v, %v", base, err)
	}
}

func TestI11_RecordedFilesAreBounded(t *testing.T) {
	t.Parallel()
	r := record(t, filepath.Join(t.TempDir(), "base"))
	for i := range maxRecords - 1 {
		r.fresh[string([]byte{byte(i), byte(i >> 8), byte(i >> 16)})] = true
	}
	r.Shown("last", File{Size: 1}, true)
	r.Shown("more", File{Size: 1}, true)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if base, err := ReadBase(r.out.Name()); err != nil || len(base) != 1 || base["last"] != (File{Size: 1}) {
		t.Errorf("%+v, %v", base, err)
	}
}
