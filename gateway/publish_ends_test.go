package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// short is a listener whose first Accepts fail, as where a process has too many files open.
type short struct {
	net.Listener
	fails atomic.Int32
}

// Accept implements net.Listener.
func (l *short) Accept() (net.Conn, error) {
	if l.fails.Add(-1) >= 0 {
		return nil, syscall.EMFILE
	}
	return l.Listener.Accept()
}

// slowSink takes a moment for each line of a published port, so that who doesn't wait for it is seen.
type slowSink struct{ audit.Sink }

// Emit implements audit.Sink.
func (s slowSink) Emit(e audit.Event) {
	if e.Kind == audit.PortFlow {
		time.Sleep(20 * time.Millisecond)
	}
	s.Sink.Emit(e)
}

func slowLines(c *gateway.Config) { c.Audit = slowSink{c.Audit} }

// TestI11_EndedClientsOfPortsFreeTheirSlots, however they end: with slots that stay taken, clients could connect until nobody
// is let in any more. The port outlives what Accept meets, and its end comes when the last line is written.
func TestI11_EndedClientsOfPortsFreeTheirSlots(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		client string
		port   uint16
		ok     bool
	}{
		"served":            {"127.0.0.1:5000", 8080, true},
		"refused by policy": {"203.0.113.9:5000", 8080, false},
		"nobody listens":    {"127.0.0.1:5000", 8081, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const clients = 3
			w := gatewaytest.StartWith(t, gatewaytest.Policy(t, ""), slowLines)
			w.Resolve("up.example", dns.TypeA) // the link is up then
			greets(t, w, 8080)
			inner, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l := &short{Listener: elsewhere{inner, c.client}}
			l.fails.Store(2)
			ended := make(chan struct{})
			go func() { defer close(ended); gateway.Publish(t.Context(), w.Gateway, l, c.port) }()
			for n := range clients {
				conn, err := net.Dial("tcp", inner.Addr().String())
				if err != nil { // it was reset before Dial looked
					continue
				}
				_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
				if _, err := io.ReadFull(conn, make([]byte, 5)); (err == nil) != c.ok {
					t.Errorf("client %d: %v", n, err)
				}
				t.Cleanup(func() { _ = conn.Close() })
			}
			if !c.ok {
				w.Audit.Wait(t, audit.PortFlow, clients)
			}
			_ = inner.Close()
			<-ended
			if got := len(w.Audit.Events(audit.PortFlow)); got != clients {
				t.Errorf("%d lines at the end of the port, want %d", got, clients)
			}
			if n := gateway.InboundSlots(w.Gateway); n != 0 {
				t.Errorf("%d slots stay taken", n)
			}
			if n := w.Gateway.Stats().Clients; n != 0 {
				t.Errorf("%d clients are counted", n)
			}
		})
	}
}

// TestRefusedClientsAreReset: an orderly end would be an empty answer.
func TestRefusedClientsAreReset(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		gateway.Publish(t.Context(), w.Gateway, elsewhere{l, "203.0.113.9:5000"}, 8080)
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err == nil { // it may be reset before Dial looks
		_, err = c.Read(make([]byte, 1))
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a refused client reads %v, want a reset", err)
	}
	_ = l.Close()
	<-ended
}

// startPod6 is startPod with a pod whose first address is an IPv6 one.
func startPod6(t *testing.T, change func(*gateway.Config)) *gatewaytest.World {
	t.Helper()
	w := startPod(t, "", func(c *gateway.Config) {
		c.Link.Guest6, c.Link.Gateway6, c.Link.Prefix6 = netip.MustParseAddr("2a0a:1::5"), netip.MustParseAddr("fd6d:7362::1"), 128
		c.Pod = c.Link.Guest6
		if change != nil {
			change(c)
		}
	})
	w.Resolve("up.example", dns.TypeA) // the link is up then
	return w
}

// TestPodsOfIPv6AreReached over IPv6, from a loopback address of either family too, and so are their loopback servers.
func TestPodsOfIPv6AreReached(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		client, sees string
		forwarded    bool
	}{
		{"[2001:db8::9]:5000", "2001:db8::9", false}, {"127.0.0.1:5000", "fd6d:7362::1", false}, {"[::1]:5000", "fd6d:7362::1", false},
		{"127.0.0.1:5000", "fd6d:7362::1", true}, {"[::1]:5000", "fd6d:7362::1", true},
	} {
		w := startPod6(t, func(cfg *gateway.Config) {
			cfg.Forward = func(context.Context, egress.Proto, uint16) (uint16, error) { return 8081, nil }
		})
		port := uint16(8080)
		if c.forwarded {
			port = 8081
		}
		l, err := w.Guest.ListenTCP6(port)
		if err != nil {
			t.Fatal(err)
		}
		sees := make(chan netip.Addr, 1)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if server, err := l.Accept(); err == nil {
				sees <- netip.MustParseAddrPort(server.RemoteAddr().String()).Addr()
				_, _ = io.WriteString(server, "hello")
			}
		}()
		if answered, _ := asksAs(t, w, c.client); !answered {
			t.Errorf("%+v: no answer", c)
		} else if got := <-sees; got.String() != c.sees {
			t.Errorf("%+v: the guest sees %s", c, got)
		}
		_ = l.Close()
		<-ended
	}
}

// serveUDP publishes a UDP port at conn, until the test ends.
func serveUDP(ctx context.Context, t *testing.T, w *gatewaytest.World, conn *net.UDPConn, port uint16) (ended chan struct{}) {
	t.Helper()
	ended = make(chan struct{})
	go func() { defer close(ended); gateway.PublishUDP(ctx, w.Gateway, conn, port) }()
	t.Cleanup(func() { _ = conn.Close(); <-ended })
	return ended
}

func listenUDP(t *testing.T, network, addr string) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenPacket(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.UDPConn)
}

// dialUDP is a client of a port.
func dialUDP(t *testing.T, network string, at net.Addr) *net.UDPConn {
	t.Helper()
	c, err := net.Dial(network, at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.UDPConn)
}

// answersUDP serves a UDP port of w's guest: each datagram that answer lets is sent back. What came is in got, with who sent it in from.
func answersUDP(t *testing.T, w *gatewaytest.World, port uint16, gateway netip.Addr, answer func(text string) bool) (got chan string, from chan netip.Addr, stop func()) {
	t.Helper()
	server, err := w.Guest.ListenUDP(port, gateway)
	if err != nil {
		t.Fatal(err)
	}
	got, from = make(chan string, 100), make(chan netip.Addr, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, 1<<16); ; {
			n, client, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			text := string(buf[:n])
			if from <- netip.MustParseAddrPort(client.String()).Addr(); answer(text) {
				_, _ = server.WriteTo([]byte(text), client)
			}
			got <- text
		}
	}()
	stop = func() { _ = server.Close(); <-ended }
	t.Cleanup(stop)
	return got, from, stop
}

func always(string) bool { return true }

// TestPodsOfIPv6AreReachedOverUDP, and so are their loopback servers.
func TestPodsOfIPv6AreReachedOverUDP(t *testing.T) {
	t.Parallel()
	for _, port := range []uint16{5353, 5354} {
		w := startPod6(t, func(cfg *gateway.Config) {
			cfg.Forward = func(context.Context, egress.Proto, uint16) (uint16, error) { return 5354, nil }
		})
		_, from, _ := answersUDP(t, w, port, w.Gateway.Link().Gateway6, always)
		conn := listenUDP(t, "udp4", "127.0.0.1:0")
		serveUDP(t.Context(), t, w, conn, 5353)
		if got := askUDP(t, dialUDP(t, "udp4", conn.LocalAddr()), "one", 20*time.Second); got != "one" {
			t.Errorf("a server at %d: the answer is %q", port, got)
		} else if a := <-from; a != w.Gateway.Link().Gateway6 {
			t.Errorf("a server at %d sees %s, want the gateway", port, a)
		}
	}
}

// TestPublishedUDPPortsEnd with their socket, their context and the gateway: the lines of their flows are written then, and nothing is
// left of them. A client is named by its own address where the socket takes both families.
func TestPublishedUDPPortsEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *gatewaytest.World, conn *net.UDPConn, cancel func()){
		"its socket":  func(_ *gatewaytest.World, conn *net.UDPConn, _ func()) { _ = conn.Close() },
		"its context": func(_ *gatewaytest.World, _ *net.UDPConn, cancel func()) { cancel() },
		"the gateway": func(w *gatewaytest.World, _ *net.UDPConn, _ func()) { w.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := gatewaytest.StartWith(t, gatewaytest.Policy(t, ""), slowLines)
			w.Resolve("up.example", dns.TypeA) // the link is up then
			answersUDP(t, w, 5353, w.Gateway.Link().Gateway4, always)
			conn := listenUDP(t, "udp", ":0")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := serveUDP(ctx, t, w, conn, 5353)
			c := dialUDP(t, "udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), conn.LocalAddr().(*net.UDPAddr).AddrPort().Port())))
			if got := askUDP(t, c, "one", 20*time.Second); got != "one" {
				t.Fatalf("the answer is %q", got)
			}
			if n, places := w.Gateway.Stats().Clients, gateway.UDPPlaces(w.Gateway); n != 1 || places != 1 {
				t.Errorf("%d clients are counted, with %d places", n, places)
			}
			end(w, conn, cancel)
			<-ended
			lines := w.Audit.Events(audit.PortFlow)
			if len(lines) != 1 || lines[0].Client.String() != c.LocalAddr().String() || lines[0].Message != "" {
				t.Errorf("the audit log says %+v of %s", lines, c.LocalAddr())
			}
			if n, places := w.Gateway.Stats().Clients, gateway.UDPPlaces(w.Gateway); n != 0 || places != 0 {
				t.Errorf("%d clients are counted at the end, with %d places", n, places)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the port's socket: %v", err)
			}
		})
	}
}

// TestEndedUDPFlowsBeginAnew: a client whose datagram was refused reaches a server that is started later.
func TestEndedUDPFlowsBeginAnew(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "")
	w.Resolve("up.example", dns.TypeA) // the link is up then
	conn := listenUDP(t, "udp4", "127.0.0.1:0")
	serveUDP(t.Context(), t, w, conn, 5353)
	c := dialUDP(t, "udp4", conn.LocalAddr())
	if _, err := c.Write([]byte("early")); err != nil {
		t.Fatal(err)
	}
	if ev := w.Audit.Wait(t, audit.PortFlow, 1)[0]; !strings.Contains(ev.Message, "0.0.0.0") {
		t.Errorf("the audit log says %+v", ev)
	}
	answersUDP(t, w, 5353, w.Gateway.Link().Gateway4, always)
	if got := askUDP(t, c, "late", 20*time.Second); got != "late" {
		t.Errorf("the answer is %q", got)
	}
}

// TestAnsweredUDPClientsAreNotForwarded: their server listens where the datagrams come, and has gone.
func TestAnsweredUDPClientsAreNotForwarded(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, ""), func(c *gateway.Config) {
		c.Forward = func(context.Context, egress.Proto, uint16) (uint16, error) {
			asked.Add(1)
			return 0, errors.New("none")
		}
	})
	w.Resolve("up.example", dns.TypeA) // the link is up then
	conn := listenUDP(t, "udp4", "127.0.0.1:0")
	serveUDP(t.Context(), t, w, conn, 5353)
	c := dialUDP(t, "udp4", conn.LocalAddr())
	_, _, stop := answersUDP(t, w, 5353, w.Gateway.Link().Gateway4, always)
	if got := askUDP(t, c, "one", 20*time.Second); got != "one" {
		t.Fatalf("the answer is %q", got)
	}
	stop()
	if _, err := c.Write([]byte("two")); err != nil {
		t.Fatal(err)
	}
	if ev := w.Audit.Wait(t, audit.PortFlow, 1)[0]; ev.BytesUp != 3 || ev.BytesDown != 6 || !strings.Contains(ev.Message, "0.0.0.0") {
		t.Errorf("the audit log says %+v", ev)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the agent was asked %d times", n)
	}
}

// TestSentDatagramsAreUses of their flow, answered or not.
func TestSentDatagramsAreUses(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "")
	w.Resolve("up.example", dns.TypeA) // the link is up then
	conn := listenUDP(t, "udp4", "127.0.0.1:0")
	serveUDP(t.Context(), t, w, conn, 5353)
	c := dialUDP(t, "udp4", conn.LocalAddr())
	got, _, _ := answersUDP(t, w, 5353, w.Gateway.Link().Gateway4, func(text string) bool { return text != "two" })
	if answer := askUDP(t, c, "one", 20*time.Second); answer != "one" || <-got != "one" {
		t.Fatalf("the answer is %q", answer)
	}
	gateway.AgeUDPFlows(w.Gateway)
	if flows, clients := gateway.AgedUDPFlows(w.Gateway); flows != 1 || clients != 1 {
		t.Fatalf("%d flows are silent, %d clients", flows, clients)
	}
	if w.Gateway.Used(); w.Gateway.Used() {
		t.Error("a silent client is a use")
	}
	if _, err := c.Write([]byte("two")); err != nil {
		t.Fatal(err)
	}
	if text := <-got; text != "two" {
		t.Fatalf("the guest got %q", text)
	}
	if flows, clients := gateway.AgedUDPFlows(w.Gateway); flows != 0 || clients != 0 {
		t.Errorf("%d flows are silent, %d clients", flows, clients)
	}
	if !w.Gateway.Used() {
		t.Error("a client that sends is no use")
	}
}

// TestUDPPortsOutliveErrors of their socket, which some systems report for answers to clients that are gone.
func TestUDPPortsOutliveErrors(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "")
	w.Resolve("up.example", dns.TypeA) // the link is up then
	answersUDP(t, w, 5353, w.Gateway.Link().Gateway4, always)
	conn := listenUDP(t, "udp4", "127.0.0.1:0")
	ended := serveUDP(t.Context(), t, w, conn, 5353)
	for range 100 {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		time.Sleep(10 * time.Microsecond)
		_ = conn.SetReadDeadline(time.Time{})
	}
	select {
	case <-ended:
		t.Fatal("the port is closed")
	default:
	}
	if got := askUDP(t, dialUDP(t, "udp4", conn.LocalAddr()), "one", 20*time.Second); got != "one" {
		t.Errorf("the answer is %q", got)
	}
}

// TestUDPClientsAreInTheCapture: a comment beside the flow's packets names the client.
func TestUDPClientsAreInTheCapture(t *testing.T) {
	t.Parallel()
	c := gateway.NewCaptureTap()
	var file bytes.Buffer
	out := capture.NewWriter(&file, capture.Options{})
	c.Start(out)
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, ""), func(cfg *gateway.Config) { cfg.Capture = c })
	w.Resolve("up.example", dns.TypeA) // the link is up then
	answersUDP(t, w, 5353, w.Gateway.Link().Gateway4, always)
	conn := listenUDP(t, "udp4", "127.0.0.1:0")
	serveUDP(t.Context(), t, w, conn, 5353)
	client := dialUDP(t, "udp4", conn.LocalAddr())
	for range 4 {
		if got := askUDP(t, client, "one", 20*time.Second); got != "one" {
			t.Fatalf("the answer is %q", got)
		}
	}
	w.Close()
	c.Start(nil)
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := capture.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for {
		rec, err := r.Next()
		if err != nil {
			break
		}
		for _, text := range rec.Comments {
			if strings.Contains(text, "msb port=") {
				found = append(found, text)
			}
		}
	}
	if len(found) != 1 || !strings.Contains(found[0], `client="`+client.LocalAddr().String()+`"`) {
		t.Errorf("the comments are %q, want one of %s", found, client.LocalAddr())
	}
}
