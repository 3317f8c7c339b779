package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// publish serves a port of w's guest on this machine.
func publish(t *testing.T, w *gatewaytest.World, port uint16) (l net.Listener, ended chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.Resolve("up.example", dns.TypeA) // the link is up then
	ended = make(chan struct{})
	go func() { defer close(ended); gateway.Publish(t.Context(), w.Gateway, l, port) }()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return l, ended
}

// TestPublishedPortsCarryBothWays sends a request that ends, and reads an answer that ends.
func TestPublishedPortsCarryBothWays(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "")
	server, err := w.Guest.ListenTCP(8080)
	if err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	from := make(chan net.Addr, 1)
	go func() {
		c, err := server.Accept()
		if err != nil {
			return
		}
		from <- c.RemoteAddr()
		got, _ := io.ReadAll(c) // to the client's half-close
		_, _ = c.Write(got)
		_ = c.Close()
	}()
	l, _ := publish(t, w, 8080)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		_, _ = c.Write(large)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes came back (%v), want %d", len(got), err, len(large))
	}
	if a, err := netip.ParseAddrPort((<-from).String()); err != nil || a.Addr() != w.Gateway.Link().Gateway4 {
		t.Errorf("the guest sees %v (%v), want the gateway's address", a, err)
	}
	ev := w.Audit.Wait(t, audit.PortFlow, 1)[0]
	if ev.Client.String() != c.LocalAddr().String() || ev.Port != 8080 || ev.BytesUp != int64(len(large)) || ev.BytesDown != int64(len(large)) || ev.Action != "allow" || ev.Duration <= 0 {
		t.Errorf("the audit log says %+v", ev)
	}
}

// hasAnEnd fails the test unless a guest is asked for ten seconds at most.
func hasAnEnd(ctx context.Context, t *testing.T) {
	t.Helper()
	if at, ok := ctx.Deadline(); !ok || time.Until(at) > 10*time.Second {
		t.Errorf("a guest is asked until %v (%v)", at, ok)
	}
}

// TestOnlyPublishedPortsAreReached: a server beside the published one hears nothing, and the end of the gateway ends
// what was published.
func TestOnlyPublishedPortsAreReached(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "")
	beside, err := w.Guest.ListenTCP(8081)
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{}, 1)
	go func() {
		if _, err := beside.Accept(); err == nil {
			heard <- struct{}{}
		}
	}()
	l, ended := publish(t, w, 8080)
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil { // it may be reset before Dial looks
		if n, err := c.Read(make([]byte, 1)); n > 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%d bytes and %v of a port where nobody listens, want a reset: an end would be an empty answer", n, err)
		}
		_ = c.Close()
	}
	ev := w.Audit.Wait(t, audit.PortFlow, 1)[0]
	if !strings.Contains(ev.Message, "doesn't answer") || !strings.Contains(ev.Message, "0.0.0.0") {
		t.Errorf("the audit log says %+v", ev)
	}
	w.Close()
	<-ended
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a published port outlives the gateway: %v", err)
	}
	select {
	case <-heard:
		t.Error("a port that was not published was reached")
	default:
	}
}

// TestI11_PublishedPortAnswersAreEgress has the guest's server send more than the budget holds.
func TestI11_PublishedPortAnswersAreEgress(t *testing.T) {
	t.Parallel()
	const budget, sent = 64 << 10, 1 << 20
	for limit, whole := range map[string]bool{"[limits]\negress_bytes = \"64K\"\n": false, "": true} {
		w := gatewaytest.Start(t, limit)
		server, err := w.Guest.ListenTCP(8080)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(make([]byte, sent))
			_ = c.Close()
		}()
		l, _ := publish(t, w, 8080)
		var got []byte
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil { // it may be reset before Dial looks
			got, err = io.ReadAll(c)
			_ = c.Close()
		}
		if whole != (len(got) == sent && err == nil) || !whole && len(got) > budget {
			t.Errorf("%q: %d bytes came (%v)", limit, len(got), err)
		}
		if ev := w.Audit.Wait(t, audit.PortFlow, 1)[0]; !whole && !strings.Contains(ev.Message, "egress_bytes") {
			t.Errorf("the audit log says %+v", ev)
		}
	}
}

// TestRemovedPortsEndTheirConnections closes the listener under a connection that is open.
func TestRemovedPortsEndTheirConnections(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "")
	server, err := w.Guest.ListenTCP(8080)
	if err != nil {
		t.Fatal(err)
	}
	l, ended := publish(t, w, 8080)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	guest, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	<-ended
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the client's end is open")
	}
	if _, err := guest.Read(make([]byte, 1)); err == nil {
		t.Error("the guest's end is open")
	}
}

// TestResetsPassThroughPublishedPorts: each side learns of the other's reset as of one.
func TestResetsPassThroughPublishedPorts(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "")
	server, err := w.Guest.ListenTCP(8080)
	if err != nil {
		t.Fatal(err)
	}
	l, _ := publish(t, w, 8080)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	guest, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if _, err := guest.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the guest reads %v, want a reset", err)
	}
}

// TestTheAgentReachesLoopbackServers: where the guest refuses, its agent is asked for a way, and nobody else.
func TestTheAgentReachesLoopbackServers(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		listens uint16
		forward func(context.Context, egress.Proto, uint16) (uint16, error)
		asked   bool
		message string
	}{
		"on its address":         {8080, nil, false, ""},
		"on loopback":            {9090, func(context.Context, egress.Proto, uint16) (uint16, error) { return 9090, nil }, true, ""},
		"nowhere":                {9091, func(context.Context, egress.Proto, uint16) (uint16, error) { return 0, errors.New("none listens") }, true, "none listens"},
		"where the agent lies":   {9091, func(context.Context, egress.Proto, uint16) (uint16, error) { return 9090, nil }, true, "refused"},
		"without an agent (any)": {9091, nil, false, "0.0.0.0"},
	} {
		asked := make(chan uint16, 10)
		w := gatewaytest.StartWith(t, gatewaytest.Policy(t, ""), func(c *gateway.Config) {
			if tt.forward != nil {
				c.Forward = func(ctx context.Context, proto egress.Proto, port uint16) (uint16, error) {
					asked <- port
					hasAnEnd(ctx, t)
					return tt.forward(ctx, proto, port)
				}
			}
		})
		greets(t, w, tt.listens)
		l, _ := publish(t, w, 8080)
		n := 0
		if c, err := net.Dial("tcp", l.Addr().String()); err == nil { // it may be reset before Dial looks
			n, _ = io.ReadFull(c, make([]byte, 5))
			_ = c.Close()
		}
		if (n == 5) != (tt.message == "") || len(asked) > 1 || (len(asked) == 1) != tt.asked || tt.asked && <-asked != 8080 {
			t.Errorf("%s: %d bytes came, the agent was asked %v", what, n, tt.asked)
		}
		w.Close()
		if ev := w.Audit.Wait(t, audit.PortFlow, 1)[0]; ev.Port != 8080 || !strings.Contains(ev.Message, tt.message) {
			t.Errorf("%s: the audit log says %+v", what, ev)
		}
	}
}
