//go:build linux

package hostdir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// outside makes a served directory beside one with a private file.
func outside(t *testing.T) (served, private string) {
	t.Helper()
	top := t.TempDir()
	put(t, top, map[string]string{"served/a/b/note": "note", "private/b/note": "private"})
	return filepath.Join(top, "served"), filepath.Join(top, "private")
}

// plain opens directories as a server without an os.Root would.
func plain(s *Server, top string) {
	s.open = func(path string) (*os.File, error) { // which waits for nobody who writes to a FIFO
		return os.OpenFile(filepath.Join(top, path), os.O_RDONLY|unix.O_DIRECTORY, 0)
	}
}

// TestI14_SwappedDirectoryLeadsNowhere puts a link in the place of a directory between lookup and open. Either of two
// defences is enough: os.Root, and that a directory must be the one that was looked up. The last case shows the escape
// with both off.
func TestI14_SwappedDirectoryLeadsNowhere(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		root, identify, escapes bool
	}{
		"both":              {true, true, false},
		"os.Root alone":     {true, false, false},
		"identity alone":    {false, true, false},
		"neither: the twin": {false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			served, private := outside(t)
			g := newGuest(t, served, Options{Writable: true})
			g.s.identify = tt.identify
			if !tt.root {
				plain(g.s, served)
			}
			b := g.must(g.walk("a", "b"))
			g.s.mu.Lock()
			for n := range g.s.dirs { // as after cacheFor
				if n.parent != nil {
					g.s.retire(n)
				}
			}
			g.s.mu.Unlock()
			if err := os.Rename(filepath.Join(served, "a"), filepath.Join(served, "was")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(private, filepath.Join(served, "a")); err != nil {
				t.Fatal(err)
			}
			reply, err := g.ask(opLookup, b, []byte("note\x00"))
			if err == nil {
				var fh uint64
				id := order.Uint64(reply)
				if fh, err = g.open(id, unix.O_RDONLY); err == nil {
					var text string
					if text, err = g.read(id, fh, 100); err == nil && text != "private" {
						t.Errorf("read %q", text)
					}
				}
			}
			if (err == nil) != tt.escapes {
				t.Errorf("escapes %t (%v), want %t", err == nil, err, tt.escapes)
			}
			_, _, err = g.create(b, "made", unix.O_RDWR)
			if _, there := os.Stat(filepath.Join(private, "b", "made")); (err == nil) != tt.escapes || (there == nil) != tt.escapes {
				t.Errorf("create: %v, seen outside: %v", err, there)
			}
		})
	}
}

func TestI14_NamesAreOneElement(t *testing.T) {
	t.Parallel()
	served, _ := outside(t)
	g := newGuest(t, served, Options{Writable: true})
	for _, n := range []string{"", ".", "..", "/etc", "a/b", "../private", strings.Repeat("x", 256), strings.Repeat("x", 5000)} {
		wanted := error(unix.EINVAL)
		if len(n) > 255 {
			wanted = unix.ENAMETOOLONG
		}
		_, err := g.walk(n)
		want(t, "lookup "+n, err, wanted)
		_, _, err = g.create(rootID, n, unix.O_RDWR)
		want(t, "create "+n, err, wanted)
		_, err = g.mkdir(rootID, n)
		want(t, "mkdir "+n, err, wanted)
		want(t, "rename "+n, g.rename(rootID, "a", rootID, n, 0), wanted)
		want(t, "rename from "+n, g.rename(rootID, n, rootID, "new", 0), wanted)
		_, err = g.ask(opUnlink, rootID, name(n))
		want(t, "unlink "+n, err, wanted)
		_, err = g.ask(opSymlink, rootID, name(n, "target"))
		want(t, "symlink "+n, err, wanted)
	}
}

func TestI14_LinksAreTextForTheGuest(t *testing.T) {
	t.Parallel()
	served, private := outside(t)
	for link, to := range map[string]string{"up": "../private/b/note", "far": filepath.Join(private, "b", "note"), "dir": private} {
		if err := os.Symlink(to, filepath.Join(served, link)); err != nil {
			t.Fatal(err)
		}
		g := newGuest(t, served, Options{Writable: true})
		id := g.must(g.walk(link))
		b, err := g.ask(opReadlink, id, nil)
		if err != nil || string(b) != to {
			t.Errorf("%q, %v; want %q", b, err, to)
		}
		_, err = g.open(id, unix.O_RDONLY)
		want(t, "open", err, unix.EISDIR)
		_, err = g.ask(opOpendir, id, put32(nil, 0, 0))
		want(t, "opendir", err, unix.ENOTDIR)
		_, err = g.walk(link, "note")
		want(t, "lookup in a link", err, unix.ENOTDIR)
		_, _, err = g.create(rootID, link, unix.O_RDWR)
		want(t, "create over a link", err, unix.EEXIST)
		set := append(put32(nil, setSize|setMode, 0), make([]byte, 80)...)
		_, err = g.ask(opSetattr, id, set)
		want(t, "truncate", err, unix.EISDIR)
	}
	if b, err := os.ReadFile(filepath.Join(private, "b", "note")); err != nil || string(b) != "private" {
		t.Errorf("outside: %q, %v", b, err)
	}
}

// TestI14_SwappedFileIsNotOpened puts a link, and a FIFO, in the place of a file after its lookup.
func TestI14_SwappedFileIsNotOpened(t *testing.T) {
	t.Parallel()
	for name, swap := range map[string]func(path, private string) error{
		"link":  func(path, private string) error { return os.Symlink(filepath.Join(private, "b", "note"), path) },
		"fifo":  func(path, _ string) error { return unix.Mkfifo(path, 0o666) },
		"other": func(path, _ string) error { return os.WriteFile(path, []byte("other"), 0o600) },
		"none":  func(string, string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			served, private := outside(t)
			g := newGuest(t, served, Options{Writable: true})
			id := g.must(g.walk("a", "b", "note"))
			path := filepath.Join(served, "a", "b", "note")
			if err := os.Rename(path, path+".old"); err != nil { // so that its inode stays in use
				t.Fatal(err)
			}
			if err := swap(path, private); err != nil {
				t.Fatal(err)
			}
			for _, flags := range []uint32{unix.O_RDONLY, unix.O_RDWR, unix.O_WRONLY} {
				_, err := g.open(id, flags)
				want(t, "open", err, unix.ESTALE)
			}
			_, err := g.ask(opGetattr, id, make([]byte, 16))
			want(t, "getattr", err, unix.ESTALE)
			_, err = g.ask(opSetattr, id, append(put32(nil, setMode|setMtimeNow, 0), make([]byte, 80)...))
			want(t, "setattr", err, unix.ESTALE)
			if st, err := os.Lstat(path); name == "other" && (err != nil || st.Mode() != 0o600) {
				t.Errorf("the other file has mode %v, %v, want it as it was", st.Mode(), err)
			}
			_, err = g.ask(opLink, rootID, append(put64(nil, id), append([]byte("new"), 0)...))
			want(t, "link", err, unix.ESTALE)
			if _, err := os.Lstat(filepath.Join(served, "new")); err == nil {
				t.Error("the other file has a second name")
			}
		})
	}
}

// TestI14_FilesSwappedBeforeOpenAreStale: two files change their names all the time, also between the look at one and
// its open.
func TestI14_FilesSwappedBeforeOpenAreStale(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"mine": "mine", "else": "else"})
	g := newGuest(t, dir, Options{})
	id := g.must(g.walk("mine"))
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "mine"), unix.AT_FDCWD, filepath.Join(dir, "else"), unix.RENAME_EXCHANGE); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 20000 {
		fh, err := g.open(id, unix.O_RDONLY)
		if err != nil {
			want(t, "open", err, unix.ESTALE)
			continue
		}
		if got, err := g.read(id, fh, 10); err != nil || got != "mine" {
			t.Errorf("it read %q, %v", got, err)
			break
		}
		want(t, "close", g.close(id, fh), nil)
	}
	close(stop)
	want(t, "swap", <-stopped, nil)
}

// TestI14_SwappedLinkIsNotRead puts another link in the place of one after its lookup. In the twin it stays.
func TestI14_SwappedLinkIsNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, link := range []string{"stays", "swapped"} {
		if err := os.Symlink("first", filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	g := newGuest(t, dir, Options{})
	stays, swapped := g.must(g.walk("stays")), g.must(g.walk("swapped"))
	path := filepath.Join(dir, "swapped")
	if err := errors.Join(os.Rename(path, path+".old"), os.Symlink("other", path)); err != nil {
		t.Fatal(err)
	}
	b, err := g.ask(opReadlink, swapped, nil)
	want(t, "readlink", err, unix.ESTALE)
	if len(b) > 0 {
		t.Errorf("the guest read %q", b)
	}
	if b, err = g.ask(opReadlink, stays, nil); err != nil || string(b) != "first" {
		t.Errorf("a link that stays: %q, %v", b, err)
	}
}

func TestSpecialFilesAreNotThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"file": ""})
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(dir, "socket"), unix.S_IFSOCK|0o666, 0); err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, dir, Options{Writable: true})
	for _, op := range []opcode{opReaddir, opReaddirplus} {
		if got := g.list(rootID, op, 4096); len(got) != 3 {
			t.Errorf("listed %v", got)
		}
	}
	for _, n := range []string{"fifo", "socket"} {
		_, err := g.walk(n)
		want(t, n, err, unix.ENOENT)
		_, _, err = g.create(rootID, n, unix.O_RDWR)
		want(t, "create "+n, err, unix.EEXIST)
		want(t, "rename over "+n, g.rename(rootID, "file", rootID, n, 0), unix.EACCES)
		want(t, "rename "+n, g.rename(rootID, n, rootID, "new", 0), unix.ENOENT)
		_, err = g.ask(opUnlink, rootID, name(n))
		want(t, "unlink "+n, err, unix.ENOENT)
		if _, err := os.Lstat(filepath.Join(dir, n)); err != nil {
			t.Error(err)
		}
	}
	for _, kind := range []uint32{unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK} {
		_, err := g.ask(opMknod, rootID, append(put32(nil, kind|0o666, 0, 0, 0), name("new")...))
		want(t, "mknod", err, unix.EPERM)
	}
}

// TestOtherMountsAreRefused looks at files as if the top were of another mount.
func TestOtherMountsAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"file": "text", "dir/file": ""})
	for what, change := range map[string]func(*unix.Statx_t){
		"device": func(i *unix.Statx_t) { i.Dev_minor++ },
		"mount":  func(i *unix.Statx_t) { i.Mnt_id++; i.Mask |= unix.STATX_MNT_ID },
	} {
		g := newGuest(t, dir, Options{Writable: true})
		change(g.s.top)
		for n, remove := range map[string]opcode{"file": opUnlink, "dir": opRmdir} {
			_, err := g.walk(n)
			want(t, what+" "+n, err, unix.EACCES)
			_, err = g.ask(remove, rootID, name(n))
			want(t, what+", remove "+n, err, unix.EACCES)
			want(t, what+", rename "+n, g.rename(rootID, n, rootID, "new", 0), unix.EACCES)
			_, _, err = g.create(rootID, n, unix.O_WRONLY|unix.O_TRUNC)
			want(t, what+", create "+n, err, unix.EEXIST)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(b) != "text" {
			t.Errorf("%s: the file holds %q now, %v", what, b, err)
		}
	}
}
