//go:build linux

package agentd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
)

// serveOnce is a server on loopback for one connection.
func serveOnce(t *testing.T, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.AcceptTCP()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn)
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// proxied is a session as other processes have it, through Serve.
func proxied(t *testing.T, s *session) *agentclient.Client {
	t.Helper()
	return served(t, s, agentclient.Services{})
}

func served(t *testing.T, s *session, also agentclient.Services) *agentclient.Client {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- agentclient.Serve(ctx, l, s.Client, also) }()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := agentclient.Attach(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); cancel(); <-served })
	return c
}

// TestConnectionsAreCarried sends more than all buffers hold, and closes each direction by itself.
func TestConnectionsAreCarried(t *testing.T) {
	s := dial(t, agentclient.Options{})
	sent := make([]byte, 3<<20)
	_, _ = rand.Read(sent)
	for what, c := range map[string]*agentclient.Client{"directly": s.Client, "through the supervisor": proxied(t, s)} {
		server := serveOnce(t, func(conn *net.TCPConn) {
			got, err := io.ReadAll(conn) // ends with the client's half
			if err == nil {
				_, err = conn.Write(got)
			}
			if err != nil {
				t.Errorf("%s: the server: %v", what, err)
			}
		})
		conn, err := c.Connect(t.Context(), server)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := conn.Write(sent); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%s: got %d bytes, %v", what, len(got), err)
		}
		conn.Close()
	}
	late := make(chan string, 1)
	first := serveOnce(t, func(conn *net.TCPConn) {
		conn.CloseWrite()
		got, _ := io.ReadAll(conn) // what came of it is compared
		late <- string(got)
	})
	conn, err := s.Connect(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || len(got) > 0 {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := conn.Write([]byte("late")); err != nil {
		t.Error(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Error(err)
	}
	if got := <-late; got != "late" {
		t.Errorf("the server that closed first got %q", got)
	}
	conn.Close()
}

// TestConnectionsLeadNowhereElse asks for addresses that are not the guest's, and for ports where nobody listens.
func TestConnectionsLeadNowhereElse(t *testing.T) {
	s := dial(t, agentclient.Options{})
	closed := serveOnce(t, func(*net.TCPConn) {})
	conn, err := s.Connect(t.Context(), closed) // the twin: it listens for one
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	conn.Close()
	for _, to := range []string{"192.0.2.1:80", "[2001:db8::1]:80", "[fe80::1%lo]:80", "127.0.0.1:0", "0.0.0.0:80", "224.0.0.1:80"} {
		if _, err := s.Connect(t.Context(), netip.MustParseAddrPort(to)); !errors.Is(err, agentclient.ErrRefused) {
			t.Errorf("%s: got %v", to, err)
		}
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().(*net.TCPAddr).AddrPort()
	l.Close()
	if _, err := s.Connect(t.Context(), nobody); !errors.Is(err, agentclient.ErrRefused) {
		t.Errorf("nobody there: got %v", err)
	}
}

// TestConnectionsPortsAreNotCut: 65536 and a port is not that port, and an address of an interface is none of the guest's.
func TestConnectionsPortsAreNotCut(t *testing.T) {
	server := loopbackServerOf(t, "tcp", "[::1]:0")
	port := uint32(server.Addr().(*net.TCPAddr).Port)
	for at, want := range map[*agentpb.ConnectStart]codes.Code{
		{Address: "::1", Port: port}:         codes.OK, // the twin
		{Address: "::1", Port: 1<<16 + port}: codes.InvalidArgument,
		{Address: "::1%lo", Port: port}:      codes.InvalidArgument,
	} {
		conn, err := dialOwn(t.Context(), at)
		wantCode(t, at.String(), err, want)
		if err == nil {
			_ = conn.Close()
		}
	}
}

// TestI11_ConnectionsAreBounded opens as many connections as there may be, and one.
func TestI11_ConnectionsAreBounded(t *testing.T) {
	s := dial(t, agentclient.Options{})
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := l.Addr().(*net.TCPAddr).AddrPort()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last *agentclient.Conn
	for range 128 {
		c, err := s.Connect(ctx, to)
		if err != nil {
			t.Fatal(err)
		}
		last = c
	}
	if _, err := s.Connect(ctx, to); !errors.Is(err, agentclient.ErrBusy) {
		t.Errorf("one too many: got %v", err)
	}
	last.Close()
	untilFree(t, func() error { _, err := s.Connect(ctx, to); return err })
}

// TestConnectionsLeadToTheGuestsInterfaces: a server may listen on the address of its card alone.
func TestConnectionsLeadToTheGuestsInterfaces(t *testing.T) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || !p.Addr().IsGlobalUnicast() {
			continue
		}
		l, err := net.Listen("tcp", netip.AddrPortFrom(p.Addr(), 0).String())
		if err != nil {
			t.Skip("nobody can listen at", p.Addr())
		}
		defer l.Close()
		s := dial(t, agentclient.Options{})
		c, err := s.Connect(t.Context(), l.Addr().(*net.TCPAddr).AddrPort())
		if err != nil {
			t.Fatalf("%s: %v", p.Addr(), err)
		}
		c.Close()
		return
	}
	t.Skip("no interface has an address")
}

// TestSilentClientsKeepTheirSession: a program that connects and has nothing to ask at first is not taken for one that never
// greets, whose connection ends after 5 seconds.
func TestSilentClientsKeepTheirSession(t *testing.T) {
	c := proxied(t, dial(t, agentclient.Options{}))
	time.Sleep(6 * time.Second)
	if _, err := c.Stats(t.Context()); err != nil {
		t.Error(err)
	}
}
