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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
)

var anyPort = netip.MustParseAddrPort("127.0.0.1:0")

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

// TestListenersLeadBack has programs of the guest connect to the host by a port and by a socket. What is open ends with the
// listener, and its socket goes.
func TestListenersLeadBack(t *testing.T) {
	s := dial(t, agentclient.Options{})
	l, err := s.Listen(t.Context(), agentclient.ListenOptions{Back: agentclient.BackReverse, At: anyPort})
	if err != nil {
		t.Fatal(err)
	}
	program, err := net.Dial("tcp", netip.AddrPortFrom(anyPort.Addr(), l.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	host, from := echo(t, l, program)
	if from.String() != program.LocalAddr().String() {
		t.Errorf("it comes from %s, want %s", from, program.LocalAddr())
	}
	if err := host.CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := program.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("half a connection ends with %v", err)
	}
	program.Close()
	if _, err := host.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a program that ends: %v", err)
	}
	l.Close()

	l, err = s.Listen(t.Context(), agentclient.ListenOptions{Back: agentclient.BackAgent})
	if err != nil {
		t.Fatal(err)
	}
	if program, err = net.Dial("unix", l.Path); err != nil {
		t.Fatal(err)
	}
	echo(t, l, program)
	l.Close()
	if _, err := program.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a connection outlives its listener")
	}
	program.Close()
	waitGone(t, filepath.Dir(l.Path))
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

// TestI15_ListenersAreTheSupervisors: a client of the supervisor's opens none.
func TestI15_ListenersAreTheSupervisors(t *testing.T) {
	s := dial(t, agentclient.Options{})
	c := proxied(t, s)
	for _, back := range []agentclient.Back{agentclient.BackAgent, agentclient.BackReverse, agentclient.BackX11, agentclient.BackChildren, 0, 7} {
		if _, err := c.Listen(t.Context(), agentclient.ListenOptions{Back: back, At: anyPort}); !errors.Is(err, agentclient.ErrRefused) {
			t.Errorf("%s: %v", back, err)
		}
	}
	l, err := s.Listen(t.Context(), agentclient.ListenOptions{Back: agentclient.BackReverse, At: anyPort}) // the twin
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// TestI15_ListenersEndWhenTheyAreRefused: the end of its context ends a listener and what came over it.
func TestI15_ListenersEndWhenTheyAreRefused(t *testing.T) {
	s := dial(t, agentclient.Options{})
	life, revoke := context.WithCancel(t.Context())
	l, err := s.Listen(life, agentclient.ListenOptions{Back: agentclient.BackReverse, At: anyPort})
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
	if _, err := program.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is carried on")
	}
	if _, _, err := l.Accept(); err == nil {
		t.Error("the listener accepts")
	}
	if s.Err() != nil {
		t.Errorf("the session ended: %v", s.Err())
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
		{Back: agentclient.BackX11, At: netip.AddrPortFrom(anyPort.Addr(), 5999)}, {Back: agentclient.BackX11, At: netip.AddrPortFrom(anyPort.Addr(), 7010)},
		{Back: agentclient.BackReverse, At: netip.MustParseAddrPort("[::1%lo]:0")}, {Back: agentclient.BackReverse, At: netip.MustParseAddrPort("192.0.2.1:0")},
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
	if display.Port < 6010 || display.Port > 7009 {
		t.Errorf("a display at port %d", display.Port)
	}
	another, err := s.Listen(t.Context(), agentclient.ListenOptions{Back: agentclient.BackX11, At: anyPort})
	if err != nil || another.Port <= display.Port {
		t.Errorf("the second display: %v, %v", another, err)
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

// TestI15_ConnectionsEndWithTheirListener, taken or not, whether or not the host ends its calls too.
func TestI15_ConnectionsEndWithTheirListener(t *testing.T) {
	for _, taken := range []bool{false, true} {
		s := newListenServer(nil, nil)
		life, end := context.WithCancel(t.Context())
		ours, program := net.Pipe()
		_ = program.SetDeadline(time.Now().Add(time.Minute)) // one that goes on fails the test
		id := s.put(&accepted{halfCloser: pipeHalf{ours}, life: life, free: func() {}})
		if taken {
			if _, err := s.take(id); err != nil {
				t.Fatal(err)
			}
		}
		end()
		if _, err := program.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("taken %v: it goes on: %v", taken, err)
		}
		if _, err := s.take(id); err == nil {
			t.Errorf("taken %v: it is given out after its listener's end", taken)
		}
	}
}

type pipeHalf struct{ net.Conn }

func (p pipeHalf) CloseWrite() error { return p.Close() }

// TestI11_ListenersAreBounded opens as many as there may be, and one.
func TestI11_ListenersAreBounded(t *testing.T) {
	s := dial(t, agentclient.Options{})
	o := agentclient.ListenOptions{Back: agentclient.BackReverse, At: anyPort}
	var last *agentclient.Listener
	for n := range 64 {
		l, err := s.Listen(t.Context(), o)
		if err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		last = l
	}
	if _, err := s.Listen(t.Context(), o); !errors.Is(err, agentclient.ErrBusy) {
		t.Errorf("one too many: %v", err)
	}
	last.Close()
	var next *agentclient.Listener
	untilFree(t, func() (err error) { next, err = s.Listen(t.Context(), o); return err })
	if c, err := net.Dial("tcp", netip.AddrPortFrom(anyPort.Addr(), last.Port).String()); err == nil && next.Port != last.Port {
		c.Close()
		t.Error("a listener that was closed accepts")
	}
}

// untilFree calls do until it no longer meets a bound: the end of a call comes to the guest a moment later.
func untilFree(t *testing.T, do func() error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		if !errors.Is(err, agentclient.ErrBusy) || time.Now().After(end) {
			t.Fatalf("after the end of one: %v", err)
		}
	}
}

// TestListenersPortsAreNotCut: 65536 and a port is not that port.
func TestListenersPortsAreNotCut(t *testing.T) {
	s := newListenServer(nil, nil)
	r := &agentpb.ListenRequest{Back: agentpb.Back_BACK_REVERSE, Address: "127.0.0.1", Port: 1 << 16}
	if l, first, err := s.open(t.Context(), r); status.Code(err) != codes.InvalidArgument {
		t.Errorf("port 65536: %v, %v", first, err)
		_ = l.Close()
	}
	r.Port = 0 // the twin
	l, _, err := s.open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

// announced is the call of a host that reads what is announced, and comes for nothing.
type announced struct {
	grpc.ServerStream
	ctx context.Context
	ids chan uint64
}

func (a announced) Send(m *agentpb.ListenResponse) error {
	select {
	case a.ids <- m.GetAccepted().GetId():
		return nil
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
}

// TestI11_UnclaimedConnectionsAreBounded: 16 are announced, and another one for each that the host comes for.
func TestI11_UnclaimedConnectionsAreBounded(t *testing.T) {
	const most, more = 16, 2
	s := newListenServer(nil, nil)
	if s.claim != 10*time.Second {
		t.Errorf("the host may take %v", s.claim)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ids, ended := make(chan uint64), make(chan error, 1)
	go func() { ended <- s.serve(ctx, l, announced{ctx: ctx, ids: ids}) }()
	programs := make([]net.Conn, most+more)
	for n := range programs {
		if programs[n], err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer programs[n].Close()
	}
	next := func() uint64 {
		t.Helper()
		select {
		case id := <-ids:
			return id
		case <-time.After(20 * time.Second):
			t.Fatal("no connection is announced")
			return 0
		}
	}
	var got []uint64
	for range most {
		got = append(got, next())
	}
	select {
	case <-ids:
		t.Errorf("more than %d are announced", most)
	case <-time.After(50 * time.Millisecond):
	}
	for n := range more {
		a, err := s.take(got[n])
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Close()
		got = append(got, next())
	}
	cancel()
	_ = l.Close()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("it ended with %v", err)
	}
	for n, c := range programs {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d outlives its listener: %v", n, err)
		}
	}
}
