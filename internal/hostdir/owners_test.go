//go:build linux

package hostdir

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// chown gives a file another owner, as the guest sees it, and returns whom it sees then.
func (g *guest) chown(id uint64, uid uint32) uint32 {
	g.t.Helper()
	body := append(put32(nil, setUID, 0), make([]byte, 80)...)
	order.PutUint32(body[76:], uid)
	return g.attrs(g.ask(opSetattr, id, body)).uid
}

// TestHostProgramsGiveNoGuestRights: a setuid program of the host is an ordinary one for the guest, however it
// is asked for, and the sticky bit of a directory stays.
func TestHostProgramsGiveNoGuestRights(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"su": "x", "tmp/f": ""})
	if err := unix.Chmod(filepath.Join(dir, "su"), 0o6755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(filepath.Join(dir, "tmp"), 0o1777); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "su")); err != nil || info.Mode()&os.ModeSetuid == 0 {
		t.Skip("this file system keeps no setuid bits")
	}
	g := newGuest(t, dir, Options{})
	for name, want := range map[string]uint32{"su": unix.S_IFREG | 0o755, "tmp": unix.S_IFDIR | 0o1777} {
		id := g.must(g.walk(name))
		if got := g.attrs(g.ask(opGetattr, id, make([]byte, 16))).mode; got != want {
			t.Errorf("%s: mode %o, want %o", name, got, want)
		}
	}
	su := g.must(g.walk("su"))
	fh := g.must(g.open(su, unix.O_RDONLY))
	if got := g.attrs(g.ask(opGetattr, su, put64(put32(nil, getattrFH, 0), fh))).mode; got != unix.S_IFREG|0o755 {
		t.Errorf("through a handle: mode %o", got)
	}
}

// mknod makes a file at the top.
func (g *guest) mknod(file string) (uint64, error) {
	g.t.Helper()
	b, err := g.ask(opMknod, rootID, append(put32(nil, unix.S_IFREG|0o600, 0, 0, 0), name(file)...))
	if err != nil {
		return 0, err
	}
	return order.Uint64(b), nil
}

// TestI11_OwnersAreForgottenAndBounded: what a guest chose as owners takes memory of the host's, up to a bound and as long
// as the file has a name.
func TestI11_OwnersAreForgottenAndBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"f": "", "g": "", "h": ""})
	if err := os.Link(filepath.Join(dir, "f"), filepath.Join(dir, "f2")); err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, dir, Options{Writable: true, uid: 5})
	f, h, twin := g.must(g.walk("f")), g.must(g.walk("h")), g.must(g.walk("g"))
	if got := g.chown(f, 1000); got != 1000 {
		t.Errorf("owner %d", got)
	}
	unlink := func(file string, owners, known int) {
		t.Helper()
		if _, err := g.ask(opUnlink, rootID, name(file)); err != nil {
			t.Fatal(err)
		}
		if len(g.s.owners) != owners || len(g.s.known) != known {
			t.Errorf("without %s %d owners and %d files are known, want %d and %d", file, len(g.s.owners), len(g.s.known), owners, known)
		}
	}
	unlink("f", 1, 4) // there is f2
	unlink("f2", 0, 3)
	d := g.must(g.mkdir(rootID, "d"))
	g.chown(d, 1000)
	if _, err := g.ask(opRmdir, rootID, name("d")); err != nil || len(g.s.owners) != 0 || len(g.s.known) != 3 {
		t.Errorf("without the directory, which has two links: %v, %d owners and %d files are known", err, len(g.s.owners), len(g.s.known))
	}
	replaced := g.must(g.mknod("replaced"))
	g.must(g.mknod("by"))
	g.chown(replaced, 1000)
	if err := g.rename(rootID, "by", rootID, "replaced", 0); err != nil || len(g.s.owners) != 0 || len(g.s.known) != 4 {
		t.Errorf("without the replaced file: %v, %d owners and %d files are known", err, len(g.s.owners), len(g.s.known))
	}
	for i := range maxOwners - 1 {
		g.s.owners[identity{inode: uint64(i), kind: 1}] = owner{1, 1}
	}
	if got := g.chown(h, 1000); got != 1000 {
		t.Errorf("the last one that there is room for: owner %d", got)
	}
	if got := g.chown(twin, 1000); got != 5 || len(g.s.owners) != maxOwners {
		t.Errorf("above the bound: owner %d, %d of them", got, len(g.s.owners))
	}
	if got := g.chown(h, 1001); got != 1001 {
		t.Errorf("one that is known already: owner %d", got)
	}
	if got := g.chown(h, 5); got != 5 || len(g.s.owners) != maxOwners-1 {
		t.Errorf("back to the host's: owner %d, %d of them", got, len(g.s.owners))
	}
	clear(g.s.owners)
}

// TestI11_UnopenableFilesAreNotHeld: the guest gets no number for it, so that it could never give it back.
func TestI11_UnopenableFilesAreNotHeld(t *testing.T) {
	t.Parallel()
	g := newGuest(t, t.TempDir(), Options{Writable: true})
	g.s.maxHandles = 0
	_, _, err := g.create(rootID, "f", unix.O_RDWR)
	want(t, "no handle is free", err, unix.EMFILE)
	if g.s.count != 1 || len(g.s.nodes) != 1 {
		t.Errorf("%d nodes, %d are held", g.s.count, len(g.s.nodes))
	}
}
