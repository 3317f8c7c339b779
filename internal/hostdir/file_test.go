//go:build linux

package hostdir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestI14_OnlyOneFileIsServed: the guest's top is the file, which it may read and write; of the directory that it
// lies in it can name nothing.
func TestI14_OnlyOneFileIsServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"hosts": "ours", "secret": "x"})
	g := newGuest(t, filepath.Join(dir, "hosts"), Options{File: true, Writable: true, PollName: "p"})
	if got := g.attrs(g.ask(opGetattr, rootID, make([]byte, 16))); got.mode != unix.S_IFREG|0o644 || got.size != 4 {
		t.Errorf("%+v", got)
	}
	if _, err := g.open(rootID, unix.O_RDWR); err != nil {
		t.Error(err)
	}
	for _, n := range []string{"secret", "hosts", "p", ".."} {
		_, err := g.ask(opLookup, rootID, name(n))
		if !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v", n, err)
		}
	}
	_, err := g.ask(opOpendir, rootID, put32(nil, 0, 0))
	want(t, "list", err, unix.ENOTDIR)
	_, err = g.ask(opLookup, noID, name("secret"))
	want(t, "the directory's own number", err, unix.ESTALE)
	_, err = g.ask(opUnlink, rootID, name("hosts"))
	want(t, "unlink", err, unix.ENOTDIR)
	_, err = g.ask(opRename, rootID, append(put64(nil, rootID), append(name("hosts"), name("x")...)...))
	want(t, "rename", err, unix.ENOTDIR)
	_, _, err = g.create(rootID, "f", unix.O_RDWR)
	want(t, "create", err, unix.ENOTDIR)

	if err := os.Remove(filepath.Join(dir, "hosts")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("secret", filepath.Join(dir, "hosts")); err != nil {
		t.Fatal(err)
	}
	g = newGuest(t, filepath.Join(dir, "secret"), Options{File: true})
	_, err = g.open(rootID, unix.O_RDWR)
	want(t, "write a file that is read-only", err, unix.EROFS)
	if _, err := New(filepath.Join(dir, "hosts"), Options{File: true}); err == nil {
		t.Error("a link is served")
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(filepath.Join(dir, "fifo"), Options{File: true}); err == nil {
		t.Error("a FIFO is served")
	}
}

// TestHostOwnersAreKept: with Options.HostOwners the guest sees and sets the users of the host's files.
func TestHostOwnersAreKept(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir := t.TempDir()
	put(t, dir, map[string]string{"su": "x", "d/f": ""})
	for path, own := range map[string][3]int{"su": {0, 7, 0o6755}, "d": {1000, 1000, 0o2775}, "d/f": {5, 6, 0o640}} {
		at := filepath.Join(dir, path)
		if err := os.Chown(at, own[0], own[1]); err != nil {
			t.Fatal(err)
		}
		if err := unix.Chmod(at, uint32(own[2])); err != nil {
			t.Fatal(err)
		}
	}
	g := newGuest(t, dir, Options{Writable: true, HostOwners: true})
	sees := func(path string, id uint64, uid, gid, mode uint32) {
		t.Helper()
		got := g.attrs(g.ask(opGetattr, id, make([]byte, 16)))
		if got.uid != uid || got.gid != gid || got.mode&0o7777 != mode {
			t.Errorf("%s: %d:%d %o, want %d:%d %o", path, got.uid, got.gid, got.mode, uid, gid, mode)
		}
	}
	d := g.must(g.walk("d"))
	sees("su", g.must(g.walk("su")), 0, 7, 0o6755)
	sees("d", d, 1000, 1000, 0o2775)
	f := g.must(g.walk("d", "f"))
	sees("f", f, 5, 6, 0o640)
	if got := g.chown(f, 33); got != 33 {
		t.Errorf("given to %d", got)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "d/f"), &st); err != nil || st.Uid != 33 || st.Gid != 6 {
		t.Errorf("the host has %d:%d, %v", st.Uid, st.Gid, err)
	}

	g.asker = owner{1001, 1002}
	made, _, err := g.create(rootID, "new", unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	sees("new", made, 1001, 1002, 0o644)
	again, _, err := g.create(rootID, "su", unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	sees("a file that was there", again, 0, 7, 0o6755)
	b, err := g.ask(opMkdir, d, append(put32(nil, 0o775, 0), name("sub")...))
	if err != nil {
		t.Fatal(err)
	}
	sees("a directory in one with a group", order.Uint64(b), 1001, 1000, 0o2775)
	if b, err = g.ask(opSymlink, rootID, append(name("link"), name("/etc/shadow")...)); err != nil {
		t.Fatal(err)
	}
	sees("link", order.Uint64(b), 1001, 1002, 0o777)
	for at, kind := range map[string]uint32{"socket": unix.S_IFSOCK, "fifo": unix.S_IFIFO} {
		if b, err = g.ask(opMknod, rootID, append(put32(nil, kind|0o660, 0, 0, 0), name(at)...)); err != nil {
			t.Fatal(err)
		}
		sees(at, order.Uint64(b), 1001, 1002, 0o660)
		_, err = g.open(order.Uint64(b), unix.O_RDWR)
		want(t, "open "+at, err, unix.EISDIR)
	}
	_, err = g.ask(opMknod, rootID, append(put32(nil, unix.S_IFCHR|0o660, 1<<8|3, 0, 0), name("null")...))
	want(t, "a device", err, unix.EPERM)
	mode := append(put32(nil, setMode, 0), make([]byte, 80)...)
	order.PutUint32(mode[68:], 0o6755)
	if _, err := g.ask(opSetattr, made, mode); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(filepath.Join(dir, "new"), &st); err != nil || st.Mode&0o7777 != 0o755 {
		t.Errorf("a program of the guest has mode %o on the host, %v", st.Mode, err)
	}
}
