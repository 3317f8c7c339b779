//go:build linux

package hostdir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openedWith opens a file and returns the flags of the reply.
func (g *guest) openedWith(id uint64, flags uint32) (fh uint64, reply uint32) {
	g.t.Helper()
	b, err := g.ask(opOpen, id, put32(nil, flags, 0))
	if err != nil {
		g.t.Fatal(err)
	}
	return order.Uint64(b), order.Uint32(b[8:])
}

// TestContentIsKeptUntilItChanges opens a file that the host changes meanwhile, and one that was changed just now.
func TestContentIsKeptUntilItChanges(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"f": "text"})
	g := newGuest(t, dir, Options{Writable: true})
	ahead, began := time.Duration(0), time.Now()
	g.s.now = func() time.Time { return began.Add(ahead) }
	id := g.must(g.walk("f"))
	kept := func(what string, want bool) {
		t.Helper()
		fh, reply := g.openedWith(id, unix.O_RDONLY)
		if got := reply&openKeepCache != 0; got != want {
			t.Errorf("%s: kept is %v", what, got)
		}
		want2 := g.close(id, fh)
		if want2 != nil {
			t.Error(want2)
		}
	}
	kept("the first", false)
	kept("changed just now", false)
	ahead = time.Second
	kept("changed a moment ago", false)
	kept("changed a moment ago, once more", false) // a further change could have the same time, where clocks are coarse
	ahead = time.Minute
	kept("changed long ago, for the first time", false)
	kept("as it was", true)
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("next"), 0o644); err != nil {
		t.Fatal(err)
	}
	kept("of the same size, by the host", false)
	kept("as it was again", true)
	fh, err := g.open(id, unix.O_WRONLY)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.write(id, fh, 0, "mine"); err != nil {
		t.Fatal(err)
	}
	kept("changed by the guest", false)
}

// TestLocksGoWithTheirHandle takes a lock through a file of whose close the guest's kernel doesn't tell.
func TestLocksGoWithTheirHandle(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"f": "text"})
	g := newGuest(t, dir, Options{Writable: true})
	id := g.must(g.walk("f"))
	lock := func(fh, owner uint64, kind uint32) error {
		_, err := g.ask(opSetlk, id, append(put64(nil, fh, owner, 0, 9), put32(nil, kind, 0, 0, 0)...))
		return err
	}
	read, flags := g.openedWith(id, unix.O_RDONLY)
	if flags&openNoFlush == 0 {
		t.Errorf("flags %#x of a file that is only read", flags)
	}
	write, flags := g.openedWith(id, unix.O_RDWR)
	if flags&openNoFlush != 0 {
		t.Errorf("flags %#x of a file that is written", flags)
	}
	other, _ := g.openedWith(id, unix.O_RDWR)
	want(t, "a lock to read", lock(read, 1, unix.F_RDLCK), nil)
	want(t, "another's to write, meanwhile", lock(write, 2, unix.F_WRLCK), unix.EAGAIN)
	// As Serve does before the next message.
	release := func(fh uint64) {
		r, _ := parseRequest(message(opRelease, id, append(put64(nil, fh), make([]byte, 16)...)))
		g.s.locks.released(g.s, r)
	}
	release(other)
	want(t, "once another file was closed", lock(write, 2, unix.F_WRLCK), unix.EAGAIN)
	release(read)
	want(t, "once it was closed", lock(write, 2, unix.F_WRLCK), nil)
	release(write)
	want(t, "a third, once the second was closed of whose closes the kernel tells", lock(other, 3, unix.F_WRLCK), unix.EAGAIN)
}

// TestMissingNamesAreBelieved sees that the guest's kernel asks once a second for a name that isn't there, hidden ones too.
func TestMissingNamesAreBelieved(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{".env": "KEY=x", "d/f": ""})
	g := newGuest(t, dir, Options{Writable: true, Hide: []string{".env"}})
	d := g.must(g.walk("d"))
	reply := func(parent uint64, file string) []byte {
		r, _ := parseRequest(message(opLookup, parent, name(file)))
		return g.s.answer(r)
	}
	for _, file := range []string{"missing", ".env"} {
		b := reply(rootID, file)
		if len(b) != replyBytes+entryBytes || order.Uint32(b[4:]) != 0 || order.Uint64(b[replyBytes:]) != 0 || order.Uint64(b[replyBytes+16:]) != 1 {
			t.Errorf("%s: %x", file, b)
		}
	}
	// Where the directory itself is gone, nothing is known.
	if err := errors.Join(os.Remove(dir+"/d/f"), os.Remove(dir+"/d")); err != nil {
		t.Fatal(err)
	}
	g.s.now = func() time.Time { return time.Now().Add(time.Minute) }
	if _, err := g.ask(opLookup, d, name("missing")); !errors.Is(err, unix.ESTALE) {
		t.Errorf("in a removed directory: %v", err)
	}
}
