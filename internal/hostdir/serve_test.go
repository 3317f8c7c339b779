//go:build linux

package hostdir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// session serves a directory over a connection.
type session struct {
	*pipe
	t     *testing.T
	ended chan error
}

func newSession(t *testing.T, dir string, o Options) (*Server, *session) {
	t.Helper()
	s, err := New(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	p := &session{&pipe{make(chan []byte), make(chan []byte, 1000), t.Context()}, t, make(chan error, 1)}
	go func() { p.ended <- s.Serve(t.Context(), p); _ = s.Close() }()
	return s, p
}

// send sends one request with a number of its own.
func (p *session) send(op opcode, unique, node uint64, body []byte) {
	b := message(op, node, body)
	order.PutUint64(b[8:], unique)
	p.requests <- b
}

// reply returns the next reply's number, error and content.
func (p *session) reply() (uint64, int32, []byte) {
	b := <-p.replies
	return order.Uint64(b[8:]), int32(order.Uint32(b[4:])), b[replyBytes:]
}

func (p *session) ask(op opcode, unique, node uint64, body []byte) []byte {
	p.t.Helper()
	p.send(op, unique, node, body)
	for {
		got, errno, b := p.reply()
		if got == 0 {
			continue // a notification
		}
		if got != unique || errno != 0 {
			p.t.Fatalf("reply %d, %v to %d of kind %d", got, unix.Errno(-errno), unique, op)
		}
		return b
	}
}

// greeting is Linux 6.12's INIT.
func greeting() []byte { return append(put32(nil, 7, 41, 128<<10, 0x73fffffb), make([]byte, 48)...) }

func TestGreetingComesFirstAndOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, bad := range map[string]func(*session){
		"none":      func(p *session) { p.send(opGetattr, 2, rootID, make([]byte, 16)) },
		"twice":     func(p *session) { p.ask(opInit, 2, 0, greeting()); p.send(opInit, 3, 0, greeting()) },
		"short":     func(p *session) { p.requests <- []byte("short") },
		"length":    func(p *session) { b := message(opInit, 0, greeting()); b[0]++; p.requests <- b },
		"extension": func(p *session) { b := message(opInit, 0, greeting()); b[37] = 1; p.requests <- b },
		"too big":   func(p *session) { p.ask(opInit, 2, 0, greeting()); p.send(opWrite, 3, 1, make([]byte, maxMessage)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p := newSession(t, dir, Options{})
			bad(p)
			if err := <-p.ended; !errors.Is(err, errProtocol) {
				t.Errorf("got %v", err)
			}
		})
	}
	_, p := newSession(t, dir, Options{})
	b := p.ask(opInit, 2, 0, greeting())
	if len(b) != 64 || order.Uint32(b) != 7 || order.Uint32(b[4:]) != abiMinor || order.Uint32(b[12:])&(initPosixLocks|initFlockLocks) != 0 {
		t.Errorf("greeting %x", b)
	}
	close(p.requests)
	if err := <-p.ended; err == nil || errors.Is(err, errProtocol) {
		t.Errorf("ended with %v", err)
	}
}

func lockBody(fh, owner uint64, kind, flags uint32) []byte {
	return put32(put64(nil, fh, owner, 0, 1<<63-1), kind, 0, flags, 0)
}

// TestLocksHoldAcrossHostAndGuest waits for a lock that the host has, of flock(2) and of ranges, and takes one that the
// host then waits for.
func TestLocksHoldAcrossHostAndGuest(t *testing.T) {
	t.Parallel()
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	for kind, tt := range map[string]struct {
		flags uint32
		host  func(fd uintptr) error
	}{
		"flock":  {lkFlock, func(fd uintptr) error { return unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) }},
		"ranges": {0, func(fd uintptr) error { l := whole; return unix.FcntlFlock(fd, unix.F_OFD_SETLK, &l) }},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, dir, map[string]string{"f": ""})
			_, p := newSession(t, dir, Options{Writable: true})
			p.ask(opInit, 2, 0, greeting())
			id := order.Uint64(p.ask(opLookup, 3, rootID, name("f")))
			fh := order.Uint64(p.ask(opOpen, 4, id, put32(nil, unix.O_RDWR, 0)))
			host, err := os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.host(host.Fd()); err != nil {
				t.Fatal(err)
			}
			p.send(opSetlk, 5, id, lockBody(fh, 9, unix.F_WRLCK, tt.flags))
			if n, errno, _ := p.reply(); n != 5 || errno != -int32(unix.EAGAIN) {
				t.Errorf("reply %d, %d", n, errno)
			}
			// One that waits can be interrupted.
			p.send(opSetlkw, 6, id, lockBody(fh, 9, unix.F_WRLCK, tt.flags))
			p.send(opInterrupt, 99, 0, put64(nil, 6))
			if n, errno, _ := p.reply(); n != 6 || errno != -int32(unix.EINTR) {
				t.Errorf("reply %d, %d", n, errno)
			}
			p.send(opSetlkw, 7, id, lockBody(fh, 9, unix.F_WRLCK, tt.flags))
			p.ask(opGetattr, 8, id, make([]byte, 16)) // others go on meanwhile
			if err := host.Close(); err != nil {
				t.Fatal(err)
			}
			heard := false // that what the host wrote under its lock is to be read
			for n := uint64(0); n != 7; {
				var errno int32
				var b []byte
				if n, errno, b = p.reply(); n != 0 && (n != 7 || errno != 0) {
					t.Fatalf("reply %d, %d", n, errno)
				}
				heard = heard || n == 0 && errno == notifyInvalNode && order.Uint64(b) == id
			}
			if !heard {
				t.Error("the guest has the lock, and goes on with the content from before it")
			}
			if host, err = os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0); err != nil {
				t.Fatal(err)
			}
			want(t, "the host's lock", tt.host(host.Fd()), unix.EAGAIN)
			if tt.flags == 0 {
				b := p.ask(opGetlk, 9, id, lockBody(fh, 10, unix.F_WRLCK, 0))
				if order.Uint32(b[16:]) != unix.F_WRLCK {
					t.Errorf("getlk %x", b)
				}
				p.ask(opFlush, 10, id, put64(nil, fh, 0, 9))
			} else {
				p.ask(opRelease, 10, id, put64(nil, fh, 0, 9))
			}
			if err := tt.host(host.Fd()); err != nil {
				t.Errorf("the host's lock after the guest's: %v", err)
			}
			_ = host.Close()
			close(p.requests)
			<-p.ended
		})
	}
}

// TestOpenShowsWhatTheHostWrote changes a file that the guest has looked at: its kernel has to look again.
func TestOpenShowsWhatTheHostWrote(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"f": "one"})
	g := newGuest(t, dir, Options{})
	id := g.must(g.walk("f"))
	open := func(wanted error) {
		t.Helper()
		_, err := g.open(id, unix.O_RDONLY)
		want(t, "open", err, wanted)
	}
	open(nil)
	put(t, dir, map[string]string{"f": "longer"})
	open(unix.ESTALE)
	g.must(g.walk("f"))
	open(nil)
	put(t, dir, map[string]string{"f": "longer still"})
	open(unix.ESTALE)
	put(t, dir, map[string]string{"f": "and again"})
	open(nil) // one that changes all the time can be opened
}
