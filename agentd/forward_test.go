//go:build linux

package agentd

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

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
	by, err := s.ForwardLoopback(t.Context(), port, listen, from)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.ForwardLoopback(t.Context(), port, listen, from); err != nil || again != by {
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
	if _, err := s.ForwardLoopback(t.Context(), port, listen, from); !errors.Is(err, agentclient.ErrRefused) {
		t.Errorf("without a server: %v, want ErrRefused", err)
	}
}

// TestI11_ForwardsAreBounded opens as many as there may be.
func TestI11_ForwardsAreBounded(t *testing.T) {
	s := newLoopbackServer()
	defer s.close()
	at := netip.MustParseAddr("127.0.0.1")
	for port := range uint16(maxForwards) {
		if _, err := s.open(forward{port + 1, at, at}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.open(forward{maxForwards + 1, at, at}); err == nil {
		t.Error("one more is open")
	}
	if _, err := s.open(forward{1, at, at}); err != nil {
		t.Errorf("one that is open is found: %v", err)
	}
}
