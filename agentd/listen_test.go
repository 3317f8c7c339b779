//go:build linux

package agentd

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
)

var anyPort = netip.MustParseAddrPort("127.0.0.1:0")

// backed is a session through a supervisor that lets these ways back be opened.
func backed(t *testing.T, s *session, allowed ...agentclient.Back) *agentclient.Client {
	t.Helper()
	return served(t, s, agentclient.Services{Back: func(ctx context.Context, to agentclient.Back, _ uint16) (context.Context, func(), error) {
		for _, a := range allowed {
			if a == to {
				return ctx, func() {}, nil
			}
		}
		return nil, nil, errors.New("not this one")
	}})
}

// echo sends a word each way over a connection of the guest's.
func echo(t *testing.T, l *agentclient.Listener, program net.Conn) (host *agentclient.Conn, from netip.AddrPort) {
	t.Helper()
	_ = program.SetDeadline(time.Now().Add(time.Minute)) // one that is carried on for ever fails the test
	host, from, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	both := func(to io.Writer, at io.Reader) {
		t.Helper()
		got := make([]byte, 4)
		if _, err := to.Write([]byte("word")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(at, got); err != nil || string(got) != "word" {
			t.Errorf("got %q, %v", got, err)
		}
	}
	both(program, host)
	both(host, program)
	return host, from
}

// TestListenersLeadBack has programs of the guest connect to the host by a port and by a socket, also through a supervisor.
// What is open ends with the listener, and its socket goes.
func TestListenersLeadBack(t *testing.T) {
	s := dial(t, agentclient.Options{})
	for what, c := range map[string]*agentclient.Client{"directly": s.Client, "through the supervisor": backed(t, s, agentclient.BackAgent, agentclient.BackReverse)} {
		l, err := c.Listen(t.Context(), agentclient.ListenOptions{Back: agentclient.BackReverse, At: anyPort})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		program, err := net.Dial("tcp", netip.AddrPortFrom(anyPort.Addr(), l.Port).String())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		host, from := echo(t, l, program)
		if from.String() != program.LocalAddr().String() {
			t.Errorf("%s: it comes from %s, want %s", what, from, program.LocalAddr())
		}
		if err := host.CloseWrite(); err != nil {
			t.Error(err)
		}
		if _, err := program.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: half a connection ends with %v", what, err)
		}
		program.Close()
		if _, err := host.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: a program that ends: %v", what, err)
		}
		l.Close()

		l, err = c.Listen(t.Context(), agentclient.ListenOptions{Back: agentclient.BackAgent})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if program, err = net.Dial("unix", l.Path); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		echo(t, l, program)
		l.Close()
		if _, err := program.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: a connection outlives its listener", what)
		}
		program.Close()
		waitGone(t, filepath.Dir(l.Path))
	}
}

// waitGone waits until the listener's end has come to the guest.
func waitGone(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			return
		}
	}
	t.Errorf("%s stays", path)
}

// TestI15_ListenersNeedTheSupervisorsGrant: if the supervisor allows none, the guest's agent opens no listener; if it
// allows some, only those.
func TestI15_ListenersNeedTheSupervisorsGrant(t *testing.T) {
	s := dial(t, agentclient.Options{})
	none, some := proxied(t, s), backed(t, s, agentclient.BackReverse)
	for _, back := range []agentclient.Back{agentclient.BackAgent, agentclient.BackReverse, agentclient.BackX11, 0, 7} {
		o := agentclient.ListenOptions{Back: back, At: anyPort}
		if _, err := none.Listen(t.Context(), o); !errors.Is(err, agentclient.ErrRefused) {
			t.Errorf("%s: %v", back, err)
		}
		l, err := some.Listen(t.Context(), o)
		if back == agentclient.BackReverse && err == nil {
			l.Close()
			continue
		}
		if !errors.Is(err, agentclient.ErrRefused) {
			t.Errorf("%s: %v", back, err)
		}
	}
}

// TestI15_ListenersEndWhenTheyAreRefused: the end of the supervisor's context ends a listener and what came over it.
func TestI15_ListenersEndWhenTheyAreRefused(t *testing.T) {
	s := dial(t, agentclient.Options{})
	life, revoke := context.WithCancel(t.Context())
	ended := make(chan struct{})
	c := served(t, s, agentclient.Services{Back: func(context.Context, agentclient.Back, uint16) (context.Context, func(), error) {
		return life, func() { close(ended) }, nil
	}})
	l, err := c.Listen(t.Context(), agentclient.ListenOptions{Back: agentclient.BackReverse, At: anyPort})
	if err != nil {
		t.Fatal(err)
	}
	program, err := net.Dial("tcp", netip.AddrPortFrom(anyPort.Addr(), l.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	echo(t, l, program)
	revoke()
	<-ended
	if _, err := program.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is carried on")
	}
	if _, _, err := l.Accept(); err == nil {
		t.Error("the listener accepts")
	}
	if c.Err() != nil {
		t.Errorf("the session ended: %v", c.Err())
	}
}

// TestListenersAreOnLoopback asks for others, for ports that displays don't have, and for one that is taken.
func TestListenersAreOnLoopback(t *testing.T) {
	s := dial(t, agentclient.Options{})
	l, err := s.Listen(t.Context(), agentclient.ListenOptions{Back: agentclient.BackReverse, At: anyPort}) // the twin
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, o := range []agentclient.ListenOptions{
		{Back: agentclient.BackReverse, At: netip.MustParseAddrPort("0.0.0.0:0")}, {Back: agentclient.BackReverse, At: netip.MustParseAddrPort("[::]:0")},
		{Back: agentclient.BackReverse}, {Back: agentclient.BackReverse, At: netip.AddrPortFrom(anyPort.Addr(), l.Port)},
		{Back: agentclient.BackX11, At: netip.AddrPortFrom(anyPort.Addr(), 22)}, {Back: agentclient.BackX11, At: netip.MustParseAddrPort("0.0.0.0:6010")},
		{Back: agentclient.BackAgent, User: "nobody-of-that-name"},
	} {
		if l, err := s.Listen(t.Context(), o); !errors.Is(err, agentclient.ErrRefused) {
			t.Errorf("%+v: %v", o, err)
			if err == nil {
				l.Close()
			}
		}
	}
	display, err := s.Listen(t.Context(), agentclient.ListenOptions{Back: agentclient.BackX11, At: anyPort})
	if err != nil {
		t.Fatal(err)
	}
	if display.Port < minX11Port+x11Offset || display.Port > maxX11Port {
		t.Errorf("a display at port %d", display.Port)
	}
	display.Close()
}

// TestAgentSocketsAreTheirUsers: nobody but the user and root gets at the socket.
func TestAgentSocketsAreTheirUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a socket to another user")
	}
	s := dial(t, agentclient.Options{})
	l, err := s.Listen(t.Context(), agentclient.ListenOptions{Back: agentclient.BackAgent, User: "12345:12346"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, mode := range map[string]os.FileMode{l.Path: os.ModeSocket | 0o600, filepath.Dir(l.Path): os.ModeDir | 0o700} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); info.Mode() != mode || st.Uid != 12345 || st.Gid != 12346 {
			t.Errorf("%s: %v of %d:%d", path, info.Mode(), st.Uid, st.Gid)
		}
	}
}

// TestI11_UnclaimedConnectionsEnd: the agent announces a bounded number of connections, which end if the host doesn't come
// for them, and none is carried twice.
func TestI11_UnclaimedConnectionsEnd(t *testing.T) {
	s := newListenServer(nil, nil)
	s.claim = time.Millisecond
	ours, theirs := net.Pipe()
	freed := make(chan struct{})
	id := s.put(&accepted{halfCloser: pipeHalf{ours}, life: t.Context(), free: func() { close(freed) }})
	<-freed
	if _, err := theirs.Read(make([]byte, 1)); err == nil {
		t.Error("it is open")
	}
	if _, err := s.take(id); err == nil {
		t.Error("it was taken")
	}
	s.claim = time.Hour
	ours, _ = net.Pipe()
	id = s.put(&accepted{halfCloser: pipeHalf{ours}, life: t.Context(), free: func() {}})
	if _, err := s.take(id + 1); err == nil {
		t.Error("one that never was is taken")
	}
	if a, err := s.take(id); err != nil || a.Close() != nil {
		t.Errorf("it is not taken: %v", err)
	}
	if _, err := s.take(id); err == nil {
		t.Error("it is taken twice")
	}
	if len(s.unclaimed) > 0 {
		t.Errorf("%d are left", len(s.unclaimed))
	}
}

type pipeHalf struct{ net.Conn }

func (p pipeHalf) CloseWrite() error { return p.Close() }

// TestI11_ListenersAreBounded opens as many as there may be, and one.
func TestI11_ListenersAreBounded(t *testing.T) {
	s := dial(t, agentclient.Options{})
	o := agentclient.ListenOptions{Back: agentclient.BackReverse, At: anyPort}
	for n := range maxListeners {
		if _, err := s.Listen(t.Context(), o); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
	}
	if _, err := s.Listen(t.Context(), o); !errors.Is(err, agentclient.ErrBusy) {
		t.Errorf("one too many: %v", err)
	}
}
