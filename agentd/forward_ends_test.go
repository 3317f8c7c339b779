//go:build linux

package agentd

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

var (
	forwardAt   = netip.MustParseAddr("127.0.0.2")
	forwardHost = netip.MustParseAddr("127.0.0.3")
)

// forwarded opens the way to a TCP server of loopback.
func forwarded(t *testing.T, s *loopbackServer, server net.Listener) (at netip.AddrPort) {
	t.Helper()
	port := netip.MustParseAddrPort(server.Addr().String()).Port()
	l, err := s.open(forward{port, forwardAt, forwardHost, false})
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(forwardAt, portOf(l))
}

// dialAs connects from an address.
func dialAs(t *testing.T, from netip.Addr, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.DialTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.TCPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // one that waits for ever fails the test
	return c
}

// isReset fails the test unless a client from that address is reset.
func isReset(t *testing.T, from netip.Addr, to netip.AddrPort) {
	t.Helper()
	c, err := net.DialTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.TCPAddrFromAddrPort(to))
	if err == nil { // it may be reset before Dial looks
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, err = c.Read(make([]byte, 1))
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a client from %s: %v, want a reset", from, err)
	}
}

// loopbackServerOf is a server at a loopback address.
func loopbackServerOf(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Skip("no such loopback:", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func accepted1(t *testing.T, l net.Listener) *net.TCPConn {
	t.Helper()
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)) // one that is never reached fails the test
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn)
}

// TestForwardsPassEndsOn: a half-close and a reset come as what they are, both ways, so that what was cut off looks so.
func TestForwardsPassEndsOn(t *testing.T) {
	server := loopbackServerOf(t, "tcp4", "127.0.0.1:0")
	s := newLoopbackServer()
	defer s.close()
	at := forwarded(t, s, server)
	for _, clientFirst := range []bool{true, false} {
		for _, reset := range []bool{true, false} {
			first, second := dialAs(t, forwardHost, at), accepted1(t, server)
			if !clientFirst {
				first, second = second, first
			}
			if _, err := first.Write([]byte("half")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(second, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			if reset {
				_ = first.SetLinger(0)
				_ = first.Close()
				if _, err := second.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("client first %v: a reset came as %v", clientFirst, err)
				}
				continue
			}
			_ = first.CloseWrite()
			if _, err := second.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("client first %v: a half-close came as %v", clientFirst, err)
			}
			if _, err := second.Write([]byte("late")); err != nil {
				t.Error(err)
			}
			_ = second.Close()
			if got, err := io.ReadAll(first); string(got) != "late" || err != nil {
				t.Errorf("client first %v: behind a half-close came %q, %v", clientFirst, got, err)
			}
		}
	}
}

// TestForwardsWithoutAServerAreReset: an orderly end would be an empty answer.
func TestForwardsWithoutAServerAreReset(t *testing.T) {
	server := loopbackServerOf(t, "tcp4", "127.0.0.1:0")
	s := newLoopbackServer()
	defer s.close()
	at := forwarded(t, s, server)
	_ = server.Close()
	isReset(t, forwardHost, at)
}

// ipv6Alone is a server at a port at which nobody listens on IPv4's loopback, nor can meanwhile.
func ipv6Alone(t *testing.T) net.Listener {
	t.Helper()
	for {
		l := loopbackServerOf(t, "tcp6", "[::1]:0")
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		port := netip.MustParseAddrPort(l.Addr().String()).Port()
		if unix.Bind(fd, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}) == nil {
			return l
		}
	}
}

// TestForwardsLeadToServersOfIPv6 too, where none listens on IPv4's loopback.
func TestForwardsLeadToServersOfIPv6(t *testing.T) {
	server := ipv6Alone(t)
	s := newLoopbackServer()
	defer s.close()
	port := netip.MustParseAddrPort(server.Addr().String()).Port()
	r, err := s.Forward(t.Context(), &agentpb.ForwardRequest{Port: uint32(port), Listen: forwardAt.AsSlice(), From: forwardHost.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	_ = accepted1(t, server).Close() // Forward has looked whether it is there
	client, end := dialAs(t, forwardHost, netip.AddrPortFrom(forwardAt, uint16(r.GetPort()))), accepted1(t, server)
	if _, err := client.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(end, make([]byte, 4)); err != nil {
		t.Error(err)
	}
}

// TestI11_ForwardedConnectionsAreBounded: others wait until one ends, and every end makes room.
func TestI11_ForwardedConnectionsAreBounded(t *testing.T) {
	if n := cap(newLoopbackServer().slots); n != 512 { // docs/ports.md
		t.Errorf("%d connections at a time", n)
	}
	const most = 2
	var open, peak atomic.Int32
	server := loopbackServerOf(t, "tcp4", "127.0.0.1:0")
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			for n, p := open.Add(1), peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
			}
			go func() {
				_, _ = c.Write([]byte("x"))
				_, _ = io.Copy(io.Discard, c)
				open.Add(-1)
				_ = c.Close()
			}()
		}
	}()
	s := newLoopbackServer()
	s.slots = make(chan struct{}, most)
	at := forwarded(t, s, server)
	for range 3 * most {
		isReset(t, netip.MustParseAddr("127.0.0.4"), at) // another address than the host's
	}
	clients := make([]*net.TCPConn, most+2)
	for n := range clients {
		clients[n] = dialAs(t, forwardHost, at)
		if n < most {
			if _, err := clients[n].Read(make([]byte, 1)); err != nil {
				t.Fatalf("client %d: %v", n, err)
			}
		}
	}
	time.Sleep(20 * time.Millisecond) // for those that should wait
	for n, c := range clients {
		if n >= most {
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Errorf("client %d: %v", n, err)
			}
		}
		_ = c.Close()
	}
	if n := peak.Load(); n > most {
		t.Errorf("%d connections at a time, want %d", n, most)
	}
	last := dialAs(t, forwardHost, at)
	if _, err := last.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	s.close() // while one is open
	if n := len(s.slots); n != 0 {
		t.Errorf("%d slots stay taken", n)
	}
	if _, err := last.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection outlives the agent: %v", err)
	}
}

// TestForwardRequestsAreChecked: none with a part missing, or with a port that would be cut to another.
func TestForwardRequestsAreChecked(t *testing.T) {
	server := loopbackServerOf(t, "tcp4", "127.0.0.1:0")
	port := uint32(netip.MustParseAddrPort(server.Addr().String()).Port())
	s := newLoopbackServer()
	defer s.close()
	for what, r := range map[string]*agentpb.ForwardRequest{
		"no port":       {Listen: forwardAt.AsSlice(), From: forwardHost.AsSlice()},
		"a port cut":    {Port: 1<<16 + port, Listen: forwardAt.AsSlice(), From: forwardHost.AsSlice()},
		"no address":    {Port: port, From: forwardHost.AsSlice()},
		"no host":       {Port: port, Listen: forwardAt.AsSlice()},
		"half a host":   {Port: port, Listen: forwardAt.AsSlice(), From: []byte{127, 0}},
		"half a listen": {Port: port, Listen: []byte{127, 0}, From: forwardHost.AsSlice()},
	} {
		if _, err := s.Forward(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Forward(t.Context(), &agentpb.ForwardRequest{Port: port, Listen: forwardAt.AsSlice(), From: forwardHost.AsSlice()}); err != nil {
		t.Errorf("the twin: %v", err)
	}
}

// TestIdleUDPFlowsOfForwardsEnd, and one whose client has sent something meanwhile goes on.
func TestIdleUDPFlowsOfForwardsEnd(t *testing.T) {
	s := newLoopbackServer()
	defer s.close()
	if s.idle != 2*time.Minute { // as the gateway's
		t.Errorf("a flow ends after %v", s.idle)
	}
	s.idle = 20 * time.Millisecond
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	at, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	client, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	key := udpClient{at, client.LocalAddr().(*net.UDPAddr).AddrPort()}
	f := forward{port: server.LocalAddr().(*net.UDPAddr).AddrPort().Port(), udp: true}
	live := func() *udpFlow {
		s.flows.mu.Lock()
		defer s.flows.mu.Unlock()
		return s.flows.live[key]
	}
	socket := s.flow(key, f)
	if socket == nil {
		t.Fatal("no flow")
	}
	for end := time.Now().Add(time.Minute); live() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an idle flow stays")
		}
	}
	if _, err := socket.Write(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket of a flow that ended: %v", err)
	}
	for one := (*udpFlow)(nil); one == nil; one = live() { // until it is used before its end
		if s.flow(key, f) == nil {
			t.Fatal("no flow")
		}
		time.Sleep(s.idle / 4) // until somebody waits for its end
		s.flows.mu.Lock()
		if one := s.flows.live[key]; one != nil {
			one.last = time.Now().Add(time.Hour)
		}
		s.flows.mu.Unlock()
	}
	one := live()
	time.Sleep(3 * s.idle) // past its first end
	if _, err := server.WriteToUDPAddrPort([]byte("late"), one.server.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	_ = client.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := client.Read(buf); err != nil || string(buf[:n]) != "late" {
		t.Errorf("a flow that was used: %q, %v", buf[:n], err)
	}
}

// TestI11_BoundsOfForwardsAreTheDocumentedOnes compares them with docs/ports.md.
func TestI11_BoundsOfForwardsAreTheDocumentedOnes(t *testing.T) {
	text, err := os.ReadFile("../docs/ports.md")
	if err != nil {
		t.Fatal(err)
	}
	if promise := "up to 512 such connections, and 128 UDP clients, at a time"; !strings.Contains(string(text), promise) || maxForwarded != 512 || maxUDPFlows != 128 {
		t.Errorf("docs/ports.md and the agent don't agree: %s", promise)
	}
}
