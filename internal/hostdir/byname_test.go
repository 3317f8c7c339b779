//go:build linux

package hostdir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// expire has directories opened again, as after cacheFor.
func (g *guest) expire() {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	for n := range g.s.dirs {
		if n.parent != nil {
			g.s.retire(n)
		}
	}
}

func TestReplacedFilesStayTheNode(t *testing.T) {
	t.Parallel()
	for byName, same := range map[bool]bool{true: true, false: false} {
		served := filepath.Join(t.TempDir(), "served")
		put(t, filepath.Dir(served), map[string]string{"served/d/note": "one", "served/new/note": "of the host", "served/kind": "file"})
		g := newGuest(t, served, Options{ByName: byName})
		before := g.must(g.walk("d", "note"))
		kind := g.must(g.walk("kind"))
		for _, err := range []error{
			os.Rename(served+"/d", served+"/was"), os.Rename(served+"/new", served+"/d"), os.Remove(served + "/kind"), os.Mkdir(served+"/kind", 0o755),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		g.expire()
		after := g.must(g.walk("d", "note"))
		if (before == after) != same {
			t.Errorf("by name %t: the node was %d and is %d", byName, before, after)
		}
		if _, err := g.open(before, unix.O_RDONLY); same {
			want(t, "open after the size has changed", err, nil)
		}
		if is := g.must(g.walk("kind")); is == kind {
			t.Errorf("by name %t: a directory has the node of a file", byName)
		}
		g.forgetAll()
		if len(g.s.named) != 0 {
			t.Errorf("%d names are left", len(g.s.named))
		}
	}
}

// TestI14_ByNameFollowsNoLink puts a link in the place of a directory that the guest has looked up. The twin opens
// as an os.Root does, which follows links within the directory: to files that are hidden, say.
func TestI14_ByNameFollowsNoLink(t *testing.T) {
	t.Parallel()
	for name, twin := range map[string]bool{"name by name": false, "os.Root alone: the twin": true} {
		served := filepath.Join(t.TempDir(), "served")
		put(t, filepath.Dir(served), map[string]string{"served/a/b/note": "note", "served/secret/b/note": "secret"})
		g := newGuest(t, served, Options{ByName: true, Hide: []string{"secret"}})
		if twin {
			g.s.open = func(path string) (*os.File, error) { return g.s.root.Open(path) }
		}
		b := g.must(g.walk("a", "b"))
		for _, err := range []error{os.Rename(served+"/a", served+"/was"), os.Symlink("secret", served+"/a")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		g.expire()
		if _, err := g.ask(opLookup, b, []byte("note\x00")); (err == nil) != twin {
			t.Errorf("%s: lookup says %v", name, err)
		}
	}
}

func TestShownFilesReachTheBase(t *testing.T) {
	t.Parallel()
	served := filepath.Join(t.TempDir(), "served")
	put(t, filepath.Dir(served), map[string]string{"served/d/note": "one", "served/listed": "two", "served/.env": "x"})
	at := filepath.Join(served, "d/note")
	var host unix.Stat_t
	if err := errors.Join(os.Chtimes(at, time.Unix(1, 2), time.Unix(3, 4)), unix.Stat(at, &host)); err != nil { // long before its ctime
		t.Fatal(err)
	}
	var heard []string
	g := newGuest(t, served, Options{ByName: true, Hide: []string{".env"}, Base: func(path string, f File, opened bool) {
		if opened {
			path += " opened"
		}
		if want := (File{host.Mode, host.Ino, 3, 3_000_000_004, host.Ctim.Nano()}); f != want {
			t.Errorf("%s: %+v, want %+v", path, f, want)
		}
		heard = append(heard, path)
	}})
	id := g.must(g.walk("d", "note"))
	if _, err := g.open(id, unix.O_RDONLY); err != nil {
		t.Fatal(err)
	}
	b, err := g.ask(opOpendir, rootID, put32(nil, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.ask(opReaddirplus, rootID, append(put32(put64(nil, order.Uint64(b), 0), 64<<10), make([]byte, 20)...)); err != nil {
		t.Fatal(err)
	}
	out, err := g.ask(opInit, 0, put32(nil, abiMajor, abiMinor, 0, ^uint32(0)))
	if flags := order.Uint32(out[12:]); err != nil || flags&(initReaddirplus|initReaddirplusAuto) != 0 {
		t.Errorf("the guest may list attributes: %x, %v", flags, err)
	}
	if want := []string{"d/note", "d/note opened"}; !slices.Equal(heard, want) {
		t.Errorf("heard of %q, want %q", heard, want)
	}
}
