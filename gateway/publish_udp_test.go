package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// publishUDP serves a UDP port of w's guest, on which a server answers with what it was sent, twice.
func publishUDP(t *testing.T, w *gatewaytest.World, port uint16) (at *net.UDPAddr, from chan netip.AddrPort) {
	t.Helper()
	w.Resolve("up.example", dns.TypeA) // the link is up then
	server, err := w.Guest.ListenUDP(port, w.Gateway.Link().Gateway4)
	if err != nil {
		t.Fatal(err)
	}
	from = make(chan netip.AddrPort, 100)
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, client, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			from <- netip.MustParseAddrPort(client.String())
			_, _ = server.WriteTo(append(bytes.Clone(buf[:n]), buf[:n]...), client)
		}
	}()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); gateway.PublishUDP(t.Context(), w.Gateway, conn, port) }()
	t.Cleanup(func() { _ = conn.Close(); <-ended; _ = server.Close() })
	at, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		t.Fatal("no UDP address")
	}
	return at, from
}

// askUDP sends one datagram and returns the answer; "" if none comes.
func askUDP(t *testing.T, c *net.UDPConn, text string, wait time.Duration) string {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 1<<16)
	n, _ := c.Read(buf)
	return string(buf[:n])
}

// TestPublishedUDPPortsCarryBothWays: each client has answers to what it sent, and its own line.
func TestPublishedUDPPortsCarryBothWays(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "")
	at, from := publishUDP(t, w, 5353)
	large := strings.Repeat("0123456789", 2000)
	seen := map[netip.AddrPort]bool{}
	for _, text := range []string{"one", "two", large} {
		c, err := net.DialUDP("udp4", nil, at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 2 {
			if got := askUDP(t, c, text, 60*time.Second); got != text+text {
				t.Errorf("%d bytes came back for %d", len(got), len(text))
			}
		}
		client := <-from
		if client.Addr() != w.Gateway.Link().Gateway4 || seen[client] || client != <-from {
			t.Errorf("the guest sees %v, of clients %v", client, seen)
		}
		seen[client] = true
	}
	w.Close()
	for _, ev := range w.Audit.Wait(t, audit.PortFlow, 3) {
		if ev.Proto != "udp" || ev.Action != "allow" || ev.Reason != "this_machine" || ev.Port != 5353 || !ev.Client.IsValid() || ev.BytesUp != 2*ev.BytesDown || ev.BytesDown == 0 || ev.Message != "" {
			t.Errorf("the audit log says %+v", ev)
		}
	}
}

// TestI11_UDPPortAnswersAreEgress: a datagram costs its bytes and 64 more. Small ones tell: their bytes alone would let
// three times as many out.
func TestI11_UDPPortAnswersAreEgress(t *testing.T) {
	t.Parallel()
	const sent, limit = 16, 2 << 10 // each answer is twice as much
	const most, tries = limit / (2*sent + least), limit / (2 * sent)
	for text, want := range map[string]int{"[limits]\negress_bytes = \"2K\"\n": most, "": tries} {
		w := gatewaytest.Start(t, text)
		at, _ := publishUDP(t, w, 5353)
		c, err := net.DialUDP("udp4", nil, at)
		if err != nil {
			t.Fatal(err)
		}
		answers := 0
		for answers < tries {
			if _, err := c.Write(bytes.Repeat([]byte("x"), sent)); err != nil || !answered(c, func() bool { return len(w.Audit.Events(audit.PortFlow)) > 0 }) {
				break
			}
			answers++
		}
		_ = c.Close()
		if few := want * 3 / 4; answers > want || answers < few { // questions of names have taken some
			t.Errorf("%q: %d answers came, want %d to %d", text, answers, few, want)
		}
	}
}

// answered waits for a datagram until the flow is over.
func answered(c *net.UDPConn, over func() bool) bool {
	buf := make([]byte, 1<<16)
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		ended := over() // first: an answer comes before the flow's line
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := c.Read(buf); err == nil {
			return true
		}
		if ended {
			return false
		}
	}
	return false
}

// TestTheAgentReachesLoopbackUDPServers: where the guest refuses datagrams, its agent is asked for a way, and the first
// datagram comes to the server.
func TestTheAgentReachesLoopbackUDPServers(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		by      uint16 // where the agent leads; 0 for nowhere
		message string
	}{
		"on loopback":          {5354, ""},
		"nowhere":              {0, "none listens"},
		"where the agent lies": {5355, "on 127.0.0.1 only"},
	} {
		asked := make(chan uint16, 10)
		w := gatewaytest.StartWith(t, gatewaytest.Policy(t, ""), func(c *gateway.Config) {
			c.Forward = func(ctx context.Context, proto egress.Proto, port uint16) (uint16, error) {
				hasAnEnd(ctx, t)
				if proto != egress.UDP {
					t.Errorf("%s: the agent is asked for %s", what, proto)
				}
				asked <- port
				if tt.by == 0 {
					return 0, errors.New("none listens")
				}
				return tt.by, nil
			}
		})
		_, _ = publishUDP(t, w, 5354)
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { defer close(ended); gateway.PublishUDP(t.Context(), w.Gateway, conn, 5353) }()
		c, err := net.DialUDP("udp4", nil, conn.LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if tt.message == "" {
			if got := askUDP(t, c, "one", time.Minute); got != "oneone" {
				t.Errorf("%s: the first datagram's answer is %q", what, got)
			}
			if got := askUDP(t, c, "two", time.Minute); got != "twotwo" {
				t.Errorf("%s: the second one's is %q", what, got)
			}
		} else if _, err := c.Write([]byte("one")); err != nil {
			t.Fatal(err)
		}
		if port := <-asked; port != 5353 {
			t.Errorf("%s: the agent was asked for %d", what, port)
		}
		if tt.message != "" {
			if ev := w.Audit.Wait(t, audit.PortFlow, 1)[0]; !strings.Contains(ev.Message, tt.message) {
				t.Errorf("%s: the audit log says %+v", what, ev)
			}
		}
		conn.Close()
		<-ended
		if len(asked) > 0 {
			t.Errorf("%s: the agent was asked twice", what)
		}
	}
}
