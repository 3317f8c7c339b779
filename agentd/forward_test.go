//go:build linux

package agentd

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentclient"
)

// loopbackEcho is a server on 127.0.0.1 that sends back what it got, once its client has sent all.
func loopbackEcho(t *testing.T) (port uint16, close func()) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				b, _ := io.ReadAll(c)
				_, _ = c.Write(b)
				_ = c.Close()
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String()).Port(), func() { _ = l.Close() }
}

// TestForwardsLeadToLoopbackServers carries both directions and their ends.
func TestForwardsLeadToLoopbackServers(t *testing.T) {
	s := dial(t, agentclient.Options{})
	port, stop := loopbackEcho(t)
	listen, from := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	by, err := s.ForwardLoopback(t.Context(), false, port, listen, from)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.ForwardLoopback(t.Context(), false, port, listen, from); err != nil || again != by {
		t.Errorf("asked again: port %d, %v; want %d", again, err, by)
	}
	ask := func(client netip.Addr, text []byte) ([]byte, error) {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(client, 0))}
		c, err := d.DialContext(t.Context(), "tcp", netip.AddrPortFrom(listen, by).String())
		if err != nil {
			return nil, err
		}
		defer c.Close()
		if _, err := c.Write(text); err != nil {
			return nil, err
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			return nil, err
		}
		return io.ReadAll(c)
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if got, err := ask(from, large); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	if got, err := ask(netip.MustParseAddr("127.0.0.4"), []byte("x")); err == nil && len(got) > 0 {
		t.Errorf("another address than the host's got %q", got)
	}
	stop()
	if got, err := ask(from, []byte("x")); err == nil && len(got) > 0 {
		t.Errorf("a server that is gone sent %q", got)
	}
	if _, err := s.ForwardLoopback(t.Context(), false, port, listen, from); !errors.Is(err, agentclient.ErrRefused) {
		t.Errorf("without a server: %v, want ErrRefused", err)
	}
}

// TestI11_ForwardsAreBounded opens as many as there may be.
func TestI11_ForwardsAreBounded(t *testing.T) {
	const most = 256
	s := newLoopbackServer()
	defer s.close()
	at := netip.MustParseAddr("127.0.0.1")
	for port := range uint16(most) {
		if _, err := s.open(forward{port + 1, at, at, false}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.open(forward{most + 1, at, at, false}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more is open: %v", err)
	}
	if _, err := s.open(forward{1, at, at, false}); err != nil {
		t.Errorf("one that is open is found: %v", err)
	}
	s.close()
	if _, err := s.open(forward{1, at, at, false}); status.Code(err) != codes.Canceled {
		t.Errorf("after the end: %v", err)
	}
}

// udpEcho is a UDP server at an address of loopback that sends back what it got.
func udpEcho(t *testing.T, network, addr string) (port uint16, got chan string, stop func()) {
	t.Helper()
	c, err := net.ListenPacket(network, addr)
	if err != nil {
		t.Skip("no such loopback:", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	got = make(chan string, 100)
	go func() {
		for b := make([]byte, maxDatagram); ; {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			got <- string(b[:n])
			_, _ = c.WriteTo(b[:n], from)
		}
	}()
	return netip.MustParseAddrPort(c.LocalAddr().String()).Port(), got, func() { _ = c.Close() }
}

// TestForwardsLeadToLoopbackUDPServers carries datagrams there and back, of IPv6's loopback too, each client's by itself,
// and those of no other address than the host's.
func TestForwardsLeadToLoopbackUDPServers(t *testing.T) {
	s := dial(t, agentclient.Options{})
	listen, from := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	for _, server := range [][2]string{{"udp4", "127.0.0.1:0"}, {"udp6", "[::1]:0"}} {
		port, got, stop := udpEcho(t, server[0], server[1])
		by, err := s.ForwardLoopback(t.Context(), true, port, listen, from)
		if err != nil {
			t.Fatalf("%s: %v", server[0], err)
		}
		if again, err := s.ForwardLoopback(t.Context(), true, port, listen, from); err != nil || again != by {
			t.Errorf("asked again: port %d, %v; want %d", again, err, by)
		}
		client := func(at netip.Addr) *net.UDPConn {
			c, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(listen, by)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		stranger := client(netip.MustParseAddr("127.0.0.4"))
		if _, err := stranger.Write([]byte("from another address")); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"one", "two"} {
			c := client(from)
			for range 2 {
				if _, err := c.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				b := make([]byte, maxDatagram)
				if n, err := c.Read(b); err != nil || string(b[:n]) != text {
					t.Errorf("%s: %q came back, %v", server[0], b[:n], err)
				}
			}
		}
		for range 4 { // the stranger's would be the first
			if text := <-got; text != "one" && text != "two" {
				t.Errorf("the server got %q", text)
			}
		}
		stop()
		if _, err := s.ForwardLoopback(t.Context(), true, port, listen, from); !errors.Is(err, agentclient.ErrRefused) {
			t.Errorf("%s, without a server: %v, want ErrRefused", server[0], err)
		}
	}
}

// TestI11_UDPFlowsOfForwardsAreBounded: a new client takes the place of the one that was silent for longest.
func TestI11_UDPFlowsOfForwardsAreBounded(t *testing.T) {
	s := newLoopbackServer()
	defer s.close()
	port, _, _ := udpEcho(t, "udp4", "127.0.0.1:0")
	at, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	f := forward{port: port, udp: true}
	client := func(n int) udpClient {
		return udpClient{at, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(n+1))}
	}
	has := func(n int) bool {
		s.flows.mu.Lock()
		defer s.flows.mu.Unlock()
		return s.flows.live[client(n)] != nil
	}
	const most = 128 // docs/ports.md
	sockets := map[int]*net.UDPConn{}
	for n := range most {
		if sockets[n] = s.flow(client(n), f); sockets[n] == nil {
			t.Fatal(n)
		}
	}
	if s.flow(client(0), f) != sockets[0] || s.flow(client(most), f) == nil {
		t.Fatal("no flow")
	}
	if s.flows.mu.Lock(); len(s.flows.live) != most {
		t.Errorf("%d flows", len(s.flows.live))
	}
	s.flows.mu.Unlock()
	if !has(0) || has(1) || !has(most) {
		t.Error("not the one that was silent for longest made room")
	}
	if _, err := sockets[1].Write(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket of one that made room: %v", err)
	}
	old := &udpFlow{server: sockets[1]}
	if s.answers(client(2), old); !has(2) { // of a client that has begun another meanwhile
		t.Error("the end of a flow took another one along")
	}
	if s.flow(client(9), forward{port: 1, udp: true}); !has(9) {
		t.Error("a client's flow went")
	}
}

// TestUDPServersAreFound in what Linux shows: at loopback or any address, and none that is connected or elsewhere.
func TestUDPServersAreFound(t *testing.T) {
	dir := t.TempDir()
	table := func(name string, rows ...string) {
		text := "  sl  local_address rem_address   st tx_queue\n"
		for _, r := range rows {
			text += "  1: " + r + " 07 00000000:00000000\n"
		}
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	table("udp", "0100007F:0035 00000000:0000", "00000000:0043 00000000:0000", "0F7FA8C0:0044 00000000:0000", "0100007F:0045 0100007F:1234")
	for port, want := range map[uint16]string{0x35: "127.0.0.1", 0x43: "127.0.0.1", 0x44: "", 0x45: "", 0x46: "", 0x47: "", 0x48: ""} {
		got, err := loopbackUDP(dir, port)
		if want == "" != errors.Is(err, errNoUDPServer) || err == nil && got.String() != want {
			t.Errorf("port %d: %s, %v", port, got, err)
		}
	}
	table("udp6", "00000000000000000000000001000000:0046 00000000000000000000000000000000:0000", "00000000000000000000000000000000:0047 00000000000000000000000000000000:0000",
		"000080FE00000000FF005450B6DB0000:0048 00000000000000000000000000000000:0000")
	for port, want := range map[uint16]string{0x35: "127.0.0.1", 0x46: "::1", 0x47: "::1", 0x48: ""} {
		got, err := loopbackUDP(dir, port)
		if want == "" != (err != nil) || err == nil && got.String() != want {
			t.Errorf("with IPv6, port %d: %s, %v", port, got, err)
		}
	}
}
