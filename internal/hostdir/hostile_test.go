//go:build linux

package hostdir

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"golang.org/x/sys/unix"
)

// checkTree fails if a node holds one that is not counted, or counts are wrong. The server answers nothing meanwhile.
func checkTree(t *testing.T, s *Server) {
	t.Helper()
	children, handles := map[*node]int{}, 0
	for id, n := range s.nodes {
		if up := n.parent; up != nil && up != s.first && s.nodes[up.id] != up {
			t.Errorf("node %d (%s) holds %d (%s), which is forgotten", id, n.name, up.id, up.name)
		}
		children[n.parent]++
		handles += len(n.handles)
	}
	for id, n := range s.nodes {
		if n.children != children[n] {
			t.Errorf("node %d (%s) has %d children, not %d", id, n.name, children[n], n.children)
		}
	}
	if s.count != len(s.nodes) || handles != len(s.handles) || s.count > s.maxNodes || handles > s.maxHandles || len(s.dirs) > s.maxDirs || len(s.known) > s.count {
		t.Errorf("%d nodes are counted of %d, %d handles of %d, %d directories, %d known", s.count, len(s.nodes), len(s.handles), handles, len(s.dirs), len(s.known))
	}
}

// TestI11_ForgottenDirectoriesAreNotHeld: a guest gives directories back while its request for a name in one is worked
// on. The name's node would hold all directories above it, which are counted no longer.
func TestI11_ForgottenDirectoriesAreNotHeld(t *testing.T) {
	t.Parallel()
	for what, ask := range map[string]func(g *guest, b uint64) error{
		"lookup": func(g *guest, b uint64) error { _, err := g.ask(opLookup, b, name("f")); return err },
		"create": func(g *guest, b uint64) error { _, _, err := g.create(b, "f", unix.O_RDWR); return err },
		"mkdir":  func(g *guest, b uint64) error { _, err := g.mkdir(b, "d"); return err },
		"rename": func(g *guest, b uint64) error { return errors.Join(g.rename(rootID, "moved", b, "f", 0), unix.ESTALE) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, dir, map[string]string{"a/b/f": "", "moved": ""})
			g := newGuest(t, dir, Options{Writable: true})
			g.must(g.walk("moved"))
			a := g.must(g.walk("a"))
			b := g.must(g.walk("a", "b"))
			open := g.s.open
			g.s.open = func(path string) (*os.File, error) {
				for _, id := range []uint64{b, a} {
					g.s.tell(request{op: opForget, node: id, body: put64(nil, 9)})
				}
				return open(path)
			}
			want(t, "a name in a forgotten directory", ask(g, b), unix.ESTALE)
			checkTree(t, g.s)
			if g.s.count != 2 {
				t.Errorf("%d nodes are left, want the top's and one", g.s.count)
			}
		})
	}
}

// TestI11_WaitingRequestsAreNotHeld: what a guest sends behind a request for a lock is let go while it waits for it.
func TestI11_WaitingRequestsAreNotHeld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"f": ""})
	host, err := os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	if err := unix.Flock(int(host.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	_, p := newSession(t, dir, Options{Writable: true})
	p.ask(opInit, 2, 0, greeting())
	f := order.Uint64(p.ask(opLookup, 3, rootID, name("f")))
	fh := order.Uint64(p.ask(opOpen, 4, f, put32(nil, unix.O_RDWR, 0)))
	sent := func() weak.Pointer[byte] {
		b := message(opSetlkw, f, append(lockBody(fh, 9, unix.F_WRLCK, lkFlock), make([]byte, maxIO)...))
		p.requests <- b
		return weak.Make(&b[0])
	}()
	p.ask(opGetattr, 5, f, make([]byte, 16))
	held := func() bool { runtime.GC(); return sent.Value() != nil }
	for end := time.Now().Add(5 * time.Second); held() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if held() {
		t.Errorf("%d bytes are held by a request that waits", maxIO)
	}
	close(p.requests)
	<-p.ended
}

// TestI11_LockedRangesAreBounded: each takes memory of the host's kernel. Ranges that meet are one, as there.
func TestI11_LockedRangesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"f": ""})
	g := newGuest(t, dir, Options{Writable: true})
	const most = 100
	g.s.locks.maxRanges = most
	f := g.must(g.walk("f"))
	fh := g.must(g.open(f, unix.O_RDWR))
	lock := func(owner, start, end uint64, kind uint32) error {
		_, err := g.ask(opSetlk, f, put32(put64(nil, fh, owner, start, end), kind, 0, 0))
		return err
	}
	kernels := func() (n int) {
		for _, l := range g.s.locks.files {
			b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", l.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			n += strings.Count(string(b), "lock:")
		}
		return n
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		start := random.Uint64N(60)
		_ = lock(random.Uint64N(3), start, start+random.Uint64N(10), uint32(random.IntN(3))) // another owner may have it
		if n := kernels(); n != g.s.locks.ranges {
			t.Fatalf("%d ranges are locked, and %d counted", n, g.s.locks.ranges)
		}
	}
	for owner := range uint64(3) {
		want(t, "unlock", lock(owner, 0, 1<<63-1, unix.F_UNLCK), nil)
	}
	for i := range uint64(most) {
		want(t, "lock", lock(i%2, 4*i, 4*i, unix.F_WRLCK), nil)
	}
	want(t, "one more", lock(1, 1<<40, 1<<40, unix.F_WRLCK), unix.ENOLCK)
	want(t, "one that meets another", lock(1, 5, 6, unix.F_WRLCK), nil)
	want(t, "the middle given back, which makes two", lock(1, 5, 5, unix.F_UNLCK), unix.ENOLCK)
	want(t, "the end given back", lock(1, 6, 6, unix.F_UNLCK), nil)
	if n := kernels(); n != most || g.s.locks.ranges != n {
		t.Errorf("%d ranges are locked, and %d counted", n, g.s.locks.ranges)
	}
	_, err := g.ask(opFlush, f, put64(nil, fh, 0, 0))
	want(t, "flush", err, nil)
	want(t, "once an owner's are given back", lock(1, 1<<40, 1<<40, unix.F_WRLCK), nil)
}

// TestI11_LocksHoldNoNodes: locks that a guest never gives back hold none of the directories above their file.
func TestI11_LocksHoldNoNodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"a/f": ""})
	g := newGuest(t, dir, Options{Writable: true})
	f := g.must(g.walk("a", "f"))
	a := weak.Make(g.s.nodes[g.must(g.walk("a"))])
	for _, flags := range []uint32{unix.O_RDWR, unix.O_RDONLY} {
		fh := g.must(g.open(f, flags))
		_, err := g.ask(opSetlk, f, put32(put64(nil, fh, uint64(flags), 0, 9), unix.F_RDLCK, 0, 0))
		want(t, "lock", err, nil)
	}
	g.forgetAll() // and no FLUSH
	for end := time.Now().Add(5 * time.Second); a.Value() != nil && time.Now().Before(end); {
		runtime.GC()
	}
	if a.Value() != nil || len(g.s.locks.files) != 2 {
		t.Errorf("the directory is held: %v, by %d locks", a.Value(), len(g.s.locks.files))
	}
}
