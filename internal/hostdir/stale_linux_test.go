package hostdir

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDirectoriesAreLookedAtAgain: the host moves one and makes another of its name. Once a second has passed, the guest is in
// neither by the old number.
func TestDirectoriesAreLookedAtAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"d/f": ""})
	g := newGuest(t, dir, Options{Writable: true})
	now := time.Now()
	g.s.now = func() time.Time { return now }
	d := g.must(g.walk("d"))
	g.must(g.walk("d", "f"))
	if err := os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	put(t, dir, map[string]string{"d/new": ""})
	now = now.Add(time.Second)
	_, err := g.mkdir(d, "made")
	want(t, "after a second", err, unix.ESTALE)
	for _, in := range []string{"d", "moved"} {
		if _, err := os.Stat(filepath.Join(dir, in, "made")); err == nil {
			t.Errorf("it was made in %s", in)
		}
	}
}

// TestOpenErrorsOfDirectoriesKeepTheirCause: only a directory that has gone makes the guest's kernel look its name up again.
func TestOpenErrorsOfDirectoriesKeepTheirCause(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"d/f": ""})
	g := newGuest(t, dir, Options{})
	d := g.must(g.walk("d"))
	for cause, wanted := range map[unix.Errno]unix.Errno{
		unix.EACCES: unix.EACCES, unix.EMFILE: unix.EMFILE, unix.ENFILE: unix.ENFILE, unix.ENOENT: unix.ESTALE, unix.ENOTDIR: unix.ESTALE, unix.ELOOP: unix.ESTALE,
	} {
		g.s.open = func(path string) (*os.File, error) { return nil, &os.PathError{Op: "open", Path: path, Err: cause} }
		_, err := g.ask(opLookup, d, name("f"))
		want(t, cause.Error(), err, wanted)
	}
}

// TestI11_ClosedServersTakeNoHandle: an open that a Close overtook leaves no descriptor.
func TestI11_ClosedServersTakeNoHandle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"f": ""})
	s, err := New(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{t: t, s: s}
	f := s.nodes[g.must(g.walk("f"))]
	file, _, err := s.openNode(f, unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.newHandle(f, file, false)
	want(t, "a handle of a closed server", err, unix.EMFILE)
	if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file is open still: %v", err)
	}
}

// TestReusedInodesAreOtherFiles: file systems give the number of a removed file to the next one.
func TestReusedInodesAreOtherFiles(t *testing.T) {
	t.Parallel()
	info := unix.Statx_t{Mask: unix.STATX_BASIC_STATS | unix.STATX_BTIME, Mode: unix.S_IFREG, Ino: 7, Btime: unix.StatxTimestamp{Sec: 1, Nsec: 1}}
	for what, change := range map[string]func(*unix.Statx_t){
		"born in another second": func(i *unix.Statx_t) { i.Btime.Sec++ }, "born in the same": func(i *unix.Statx_t) { i.Btime.Nsec++ }, "another type": func(i *unix.Statx_t) { i.Mode = unix.S_IFLNK },
		"another number": func(i *unix.Statx_t) { i.Ino++ }, "another minor": func(i *unix.Statx_t) { i.Dev_minor++ }, "another major": func(i *unix.Statx_t) { i.Dev_major++ },
	} {
		other := info
		change(&other)
		if identityOf(&other) == identityOf(&info) {
			t.Errorf("%s: it is taken for the same file", what)
		}
	}
}

// TestI11_FIFOsAreNotWaitedFor that the host puts in a file's place between the look and the open.
func TestI11_FIFOsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "f")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, dir, Options{Writable: true})
	top, err := g.s.dir(g.s.first)
	if err != nil {
		t.Fatal(err)
	}
	defer top.release()
	done := make(chan error, 1)
	go func() {
		_, err := openat(top, "f", unix.O_WRONLY, 0)
		done <- err
	}()
	select {
	case err := <-done:
		want(t, "a FIFO that nobody reads from", err, unix.ENXIO)
	case <-time.After(10 * time.Second):
		t.Error("it is waited for")
		if f, err := os.OpenFile(fifo, os.O_RDWR, 0); err == nil { // lets it go
			<-done
			_ = f.Close()
		}
	}
}

// TestFilesThatNobodyCouldUseAreRemoved: without the right to give files away, none stays that belongs to this process's user.
func TestFilesThatNobodyCouldUseAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, dir, Options{Writable: true, HostOwners: true})
	g.asker = owner{4711, 4712}
	create := func() error {
		if os.Geteuid() == 0 { // takes the rights over files from root, in this thread
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := unix.Setfsuid(1000); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Setfsuid(0) }()
		}
		_, _, err := g.create(rootID, "f", unix.O_RDWR)
		return err
	}
	want(t, "create", create(), unix.EPERM)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
