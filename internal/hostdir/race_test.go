//go:build linux

package hostdir

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// attackTime is how long TestI14_RandomRequestsStayInside sends; -count makes it longer.
const attackTime = 300 * time.Millisecond

// attacker is the connection of a guest's kernel that keeps to no protocol: it sends requests of all kinds at once, with
// numbers that it has learned, that are gone and that never were.
type attacker struct {
	t      *testing.T
	random *rand.Rand
	until  time.Time
	secret []string // in no reply
	leaked func(secret string)
	sent   int

	mu      sync.Mutex
	nodes   []uint64
	handles []uint64
	walks   []walk
}

// walk is an open of a file by its path and a read of it, as an honest kernel does it, step by step: random requests alone
// hardly ever get that far.
type walk struct {
	path     []string // what is to be looked up yet
	node, fh uint64
	read     bool
	step     opcode // that comes next
}

// walkNumbers are above those of random requests: which walk waits for the reply.
const walkNumbers, maxWalks = 100, 8

func newWalks() []walk {
	all := make([]walk, maxWalks)
	for i := range all {
		all[i].step = opLookup
	}
	return all
}

// walkOn is the next request of a walk, and false if each waits for a reply.
func (a *attacker) walkOn() ([]byte, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	paths := [][]string{{"a", "note"}, {"a", "b", "note"}, {"swap"}, {"link"}, {"a", hiddenName}, {"a", "b", "key"}, {"b", "key"}, {"n1", "b", "key"}, {"a", "key"}, {"key"}}
	for i := range a.walks {
		w := &a.walks[i]
		op, node := w.step, w.node
		var body []byte
		switch w.step {
		case opLookup:
			if node == 0 {
				w.path = paths[a.random.IntN(len(paths))]
				node = rootID
			}
			body = name(w.path[0])
		case opOpen:
			body = put32(nil, unix.O_RDONLY, 0)
		case opRead:
			body = bytes.Join([][]byte{put64(nil, w.fh, 0), put32(nil, 1<<10, 0), make([]byte, 16)}, nil)
		case opRelease:
			body = append(put64(nil, w.fh), make([]byte, 16)...)
		default:
			continue
		}
		w.step = 0
		b := message(op, node, body)
		order.PutUint64(b[8:], walkNumbers+uint64(i))
		return b, true
	}
	return nil, false
}

// walked takes the reply to a walk's last request.
func (w *walk) walked(b []byte) {
	failed := order.Uint32(b[4:]) != 0
	switch b = b[replyBytes:]; {
	case len(w.path) > 0 && !failed && len(b) == entryBytes && order.Uint64(b) != 0:
		w.node, w.path, w.step = order.Uint64(b), w.path[1:], opLookup
		if len(w.path) == 0 {
			w.step = opOpen
		}
	case w.fh == 0 && !failed && len(b) == 16:
		w.fh, w.step = order.Uint64(b), opRead
	case w.fh != 0 && !w.read:
		w.read, w.step = true, opRelease
	default:
		*w = walk{step: opLookup}
	}
}

func (a *attacker) Recv() ([]byte, error) {
	if a.sent++; a.sent == 1 {
		return message(opInit, 0, greeting()), nil
	}
	if time.Now().After(a.until) {
		return nil, io.EOF
	}
	if a.sent%2 == 0 {
		if b, ok := a.walkOn(); ok {
			return b, nil
		}
	}
	op, node, body := a.request()
	b := message(op, node, body)
	order.PutUint64(b[8:], a.random.Uint64N(50)) // numbers of requests that are under way, too
	return b, nil
}

// Send learns numbers from wherever a reply may have some.
func (a *attacker) Send(b []byte) error {
	if len(b) < replyBytes || len(b) > maxMessage || int(order.Uint32(b)) != len(b) {
		a.t.Errorf("reply of %d bytes: %x", len(b), b[:min(len(b), replyBytes)])
	}
	for _, s := range a.secret {
		if bytes.Contains(b, []byte(s)) {
			a.leaked(s)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	learn := func(known *[]uint64, id uint64) {
		if id == 0 || id > 1<<32 {
			return
		}
		if len(*known) < 100 {
			*known = append(*known, id)
		} else {
			(*known)[id%100] = id
		}
	}
	if i := order.Uint64(b[8:]) - walkNumbers; i < uint64(len(a.walks)) {
		a.walks[i].walked(b)
	}
	switch b = b[replyBytes:]; {
	case len(b) == entryBytes:
		learn(&a.nodes, order.Uint64(b))
	case len(b) == entryBytes+16:
		learn(&a.nodes, order.Uint64(b))
		learn(&a.handles, order.Uint64(b[entryBytes:]))
	case len(b) == 16:
		learn(&a.handles, order.Uint64(b))
	}
	return nil
}

// number is one that was learned, or any.
func (a *attacker) number(known []uint64) uint64 {
	switch n := a.random.IntN(20); {
	case n == 0:
		return a.random.Uint64()
	case n < 4 || len(known) == 0:
		return a.random.Uint64N(20)
	}
	return known[a.random.IntN(len(known))]
}

func (a *attacker) name() []byte {
	names := []string{
		"a", "b", "note", "swap", "was", "link", "n1", "n2", "n3", "key", hiddenName, "..", ".", "", "a/b", "../private/note",
		strings.Repeat("l", 255), strings.Repeat("l", 256),
	}
	n := names[a.random.IntN(len(names))]
	if a.random.IntN(3) > 0 {
		n = names[a.random.IntN(11)]
	}
	return name(n)
}

// size is a length or a place in a file: small, or one that overflows. Sparse files hold what is between.
func (a *attacker) size() uint64 {
	return []uint64{0, 1, 24, 1 << 10, 1 << 16, 1<<31 - 1, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1}[a.random.IntN(10)]
}

const hiddenName = "hidden"

func (a *attacker) request() (opcode, uint64, []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.random
	node, fh, some := a.number(a.nodes), a.number(a.handles), r.Uint32()
	if r.IntN(3) == 0 {
		node = rootID
	}
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	n64, n32 := func(v ...uint64) []byte { return put64(nil, v...) }, func(v ...uint32) []byte { return put32(nil, v...) }
	access := some & (openFlags | unix.O_EXCL | unix.O_TRUNC)
	ops := []opcode{
		opLookup, opForget, opGetattr, opSetattr, opReadlink, opSymlink, opMknod, opMkdir, opUnlink, opRmdir, opRename, opLink, opOpen,
		opRead, opWrite, opRelease, opFsync, opFlush, opOpendir, opReaddir, opGetlk, opSetlk, opSetlkw, opCreate, opInterrupt, opBatchForget, opFallocate,
		opReaddirplus, opRename2, opLseek, opPoll, opcode(r.IntN(64)), opcode(r.Uint32()), opLookup, opOpen, opCreate, opRead, opLookup,
	}
	op := ops[r.IntN(len(ops))]
	var body []byte
	switch op {
	case opInit:
		op = opStatfs // a second ends the session
	case opLookup, opUnlink, opRmdir:
		body = a.name()
	case opForget:
		body = n64([]uint64{1, 1, 1, 1 << 63}[r.IntN(4)])
	case opBatchForget:
		body = cat(n32([]uint32{0, 2, 1 << 31, 1<<32 - 1}[r.IntN(4)], 0), n64(node, 1, a.number(a.nodes), a.size()))
	case opSetattr:
		body = cat(n32(some&0x7ff, 0), n64(fh, a.size(), 9, r.Uint64(), r.Uint64(), 0), n32(some, some, 0, some, 0, some, some, 0))
	case opSymlink:
		body = cat(a.name(), name([]string{"../private", "../private/note", "/etc/passwd", "a"}[r.IntN(4)]))
	case opMknod:
		body = cat(n32([]uint32{unix.S_IFREG, unix.S_IFIFO, unix.S_IFCHR, some}[r.IntN(4)], 0, 0, 0), a.name())
	case opMkdir:
		body = cat(n32(some&0o777|0o700, 0), a.name())
	case opRename:
		body = cat(n64(a.number(a.nodes)), a.name(), a.name())
	case opRename2:
		body = cat(n64(a.number(a.nodes)), n32([]uint32{0, 1, 2, 3, 4, some}[r.IntN(6)], 0), a.name(), a.name())
	case opLink:
		body = cat(n64(a.number(a.nodes)), a.name())
	case opOpen, opOpendir:
		body = n32(access, 0)
	case opCreate:
		body = cat(n32(access, some|0o600, 0, 0), a.name())
	case opRead, opReaddir, opReaddirplus, opLseek:
		body = cat(n64(fh, a.size()), n32(uint32(a.size()), 0), make([]byte, 16))
	case opWrite:
		data := make([]byte, r.IntN(3)*r.IntN(maxIO/2))
		body = cat(n64(fh, a.size()), n32(uint32(len(data)), 0), make([]byte, 16), data)
	case opFallocate:
		body = cat(n64(fh, a.size(), min(a.size()|1<<63, 1<<63)|r.Uint64N(1<<16)), n32(some&0x7f, 0))
	case opGetlk, opSetlk, opSetlkw:
		body = cat(n64(fh, r.Uint64N(5), a.size(), a.size()), n32(some%4, 0, some>>8&1, 0))
	case opInterrupt:
		body = n64(r.Uint64N(50))
	default:
		body = cat(n64(fh, 0), n32(some, 0), make([]byte, 16))
	}
	switch r.IntN(20) {
	case 0:
		body = body[:r.IntN(len(body)+1)]
	case 1:
		body = append(body, make([]byte, r.IntN(100))...)
	}
	return op, node, body
}

// swaps are what the host does meanwhile in the directory: links out come and go in the place of its directories and files.
// It follows none of them itself.
func swaps(ctx context.Context, served string, root *os.Root) {
	for n := 0; ctx.Err() == nil; n++ { // what fails, the guest was in the way of
		_ = root.Rename("a", "was")
		_ = root.Symlink("../private", "a")
		_ = root.Remove("swap")
		if n%2 == 0 {
			_ = root.Symlink("../private/note", "swap")
		} else {
			_ = unix.Mkfifo(filepath.Join(served, "swap"), 0o600)
		}
		_ = root.Remove("a")
		_ = root.Rename("was", "a")
		_ = root.Remove("swap")
		if f, err := root.OpenFile("swap", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			_ = f.Close()
		}
		_ = root.Rename("a/b", "b")
		_ = root.Rename("b", "a/b")
	}
}

// TestI14_RandomRequestsStayInside has a guest send anything at once while the host changes the directory: no reply has
// what lies outside or is hidden, neither is touched, and what the guest is given stays within its bounds (I11).
func TestI14_RandomRequestsStayInside(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"writable": {Writable: true}, "read-only": {}, "owners": {Writable: true, HostOwners: os.Geteuid() == 0}, "by name": {ByName: true, Base: func(string, File, bool) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, top := attacked(t, o)
			watched := []string{"private", "private/note", "private/b", "private/b/note"}
			before := changeTimes(t, top, watched)
			seed := rand.Uint64()
			g := &attacker{t: t, walks: newWalks(), random: rand.New(rand.NewPCG(seed, 0)), until: time.Now().Add(attackTime), secret: []string{privateText, "under cover", "under path"}}
			g.leaked = func(secret string) { t.Errorf("a reply has %q", secret) }
			g.attack(s, top)
			checkTree(t, s)
			if len(s.locks.files) > s.locks.maxFiles || s.locks.ranges > maxRanges || len(s.locks.waiting) > 0 {
				t.Errorf("%d files and %d ranges are locked, %d requests wait", len(s.locks.files), s.locks.ranges, len(s.locks.waiting))
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if after := changeTimes(t, top, watched); !bytes.Equal(before, after) {
				t.Errorf("outside is changed: %x, was %x", after, before)
			}
			hidden := 0
			_ = filepath.WalkDir(filepath.Join(top, "served"), func(path string, d os.DirEntry, _ error) error { // the guest may have taken rights
				if d.Name() != hiddenName {
					return nil
				}
				if b, err := os.ReadFile(path); err == nil && string(b) == "under cover" {
					hidden++
				}
				return nil
			})
			if hidden != 1 && os.Geteuid() == 0 {
				t.Errorf("%d hidden files, want 1", hidden)
			}
			if t.Failed() {
				t.Logf("seed %d, %d requests", seed, g.sent)
			}
		})
	}
}

// TestRandomRequestsEscapeWithoutConfinement is the twin of TestI14_RandomRequestsStayInside: the same attack on a server
// that has neither an os.Root nor asks whether a directory is the one that was looked up.
func TestRandomRequestsEscapeWithoutConfinement(t *testing.T) {
	t.Parallel()
	for range 200 { // the first is enough, nearly always
		s, top := attacked(t, Options{Writable: true})
		s.identify = false
		plain(s, filepath.Join(top, "served"))
		var out atomic.Bool
		g := &attacker{t: t, walks: newWalks(), random: rand.New(rand.NewPCG(rand.Uint64(), 0)), until: time.Now().Add(attackTime), secret: []string{privateText}}
		g.leaked = func(string) { out.Store(true) }
		g.attack(s, top)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if out.Load() {
			return
		}
	}
	t.Error("nothing from outside came in any reply")
}

// privateText is what lies outside of the served directory.
const privateText = "private matter"

// attacked serves a directory that lies beside a private one, with low bounds.
func attacked(t *testing.T, o Options) (s *Server, top string) {
	t.Helper()
	top = t.TempDir()
	put(t, top, map[string]string{"served/a/b/note": "note", "served/a/" + hiddenName: "under cover", "served/a/b/key": "under path", "private/note": privateText, "private/b/note": privateText})
	o.Hide, o.Share = []string{hiddenName, "**/b/key"}, 1
	s, err := New(filepath.Join(top, "served"), o)
	if err != nil {
		t.Fatal(err)
	}
	s.maxNodes, s.maxHandles, s.locks.maxFiles, s.maxDirs = 60, 30, 10, 5
	var asked atomic.Int64
	began := s.now()
	s.now = func() time.Time { return began.Add(time.Duration(asked.Add(1)) * cacheFor / 4) } // directories are opened often
	return s, top
}

// attack sends until its time is over, while the host changes the directory.
func (a *attacker) attack(s *Server, top string) {
	a.t.Helper()
	root, err := os.OpenRoot(filepath.Join(top, "served"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	ctx, cancel := context.WithCancel(a.t.Context())
	var host sync.WaitGroup
	host.Go(func() { swaps(ctx, filepath.Join(top, "served"), root) })
	err = s.Serve(ctx, a)
	cancel()
	host.Wait()
	if !errors.Is(err, io.EOF) {
		a.t.Errorf("ended with %v", err)
	}
}

// changeTimes has the ctime of each: nothing is done to a file without it.
func changeTimes(t *testing.T, top string, names []string) (b []byte) {
	t.Helper()
	for _, n := range names {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(top, n), &st); err != nil {
			t.Fatal(err)
		}
		b = put64(b, uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec))
	}
	return b
}
