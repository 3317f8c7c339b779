package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

const (
	toDB   = "[hosts]\n\"db.internal\" = \"sandbox:db:5432\"\n"
	fromMe = "[[ingress.allow]]\nname = \"app\"\nsandboxes = [\"web\"]\nports = [5432]\n"
)

// unixPair is the two ends of a connection over a Unix socket, as between two gateways.
func unixPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if ours, err = net.Dial("unix", l.Addr().String()); err == nil {
		theirs, err = l.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// pair is two worlds; what leads to sandbox:db in the first one's policy comes to the second as from a sandbox.
func pair(t *testing.T, from, own, others string) (a, b *gatewaytest.World) {
	t.Helper()
	b = gatewaytest.Start(t, others)
	t.Cleanup(b.Close)
	b.Resolve("up.example", dns.TypeA) // the link is up then
	a = gatewaytest.StartWith(t, gatewaytest.Policy(t, own), func(cfg *gateway.Config) {
		cfg.DialSandbox = func(ctx context.Context, name string, port uint16) (net.Conn, error) {
			if at, ok := ctx.Deadline(); !ok || time.Until(at) > 20*time.Second {
				t.Errorf("another sandbox is asked until %v (%v)", at, ok)
			}
			if name != "db" {
				return nil, errors.New("no such sandbox")
			}
			ours, theirs := unixPair(t)
			answered := make(chan error, 1)
			go gateway.ServePeer(t.Context(), b.Gateway, theirs, from, port, func(err error) error { answered <- err; return nil })
			if err := <-answered; err != nil {
				return nil, err
			}
			return ours, nil
		}
	})
	t.Cleanup(a.Close)
	return a, b
}

// TestI15_BothPoliciesMustAllowSandboxes, and each log says so. Without either rule nothing connects, nor by the other
// one's address, nor to another port, nor under another name.
func TestI15_BothPoliciesMustAllowSandboxes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, own, others string
		ok                bool
	}{
		"both":         {"web", toDB, fromMe, true},
		"no ingress":   {"web", toDB, "", false},
		"another name": {"worm", toDB, fromMe, false},
		"another port": {"web", strings.Replace(toDB, "5432", "5433", 1), fromMe, false},
		"cidrs only":   {"web", toDB, "[[ingress.allow]]\ncidrs = [\"0.0.0.0/0\", \"::/0\"]\n", false},
		"nobody there": {"web", strings.Replace(toDB, "sandbox:db", "sandbox:other", 1), fromMe, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, c.from, c.own, c.others)
			greets(t, b, 5432)
			greets(t, b, 5433)
			conn, err := a.Dial(a.Lookup("db.internal"), 5432)
			if (err == nil) != c.ok {
				t.Fatalf("connecting: %v", err)
			}
			if err != nil && name != "nobody there" {
				b.Close()
				if ev := b.Audit.Wait(t, audit.PortFlow, 1)[0]; ev.Action != "deny" || ev.Peer != c.from || ev.Rule != "" || !strings.Contains(ev.Message, "lets this sandbox connect") {
					t.Errorf("the called sandbox's log says %+v", ev)
				}
				if ev := a.Audit.Wait(t, audit.FlowClose, 1)[0]; !strings.Contains(ev.Message, "[[ingress.allow]] with sandboxes and ports") {
					t.Errorf("the caller's log says %+v", ev)
				}
			}
			if err == nil {
				if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
					t.Error(err)
				}
				_ = conn.Close()
				b.Close()
				ev := b.Audit.Wait(t, audit.PortFlow, 1)[0]
				if ev.Peer != "web" || ev.Client.IsValid() || ev.Rule != "app" || ev.Action != "allow" || ev.Port != 5432 || ev.BytesUp != 5 {
					t.Errorf("the called sandbox's log says %+v", ev)
				}
			}
			if ev := a.Audit.Wait(t, audit.FlowOpen, 1)[0]; !strings.HasPrefix(ev.Target, "sandbox:") {
				t.Errorf("the caller's log says %+v", ev)
			}
		})
	}
	a, b := pair(t, "web", "", fromMe)
	greets(t, b, 5432)
	if conn, err := a.Dial(b.Gateway.Link().Guest4, 5432); err == nil {
		_ = conn.Close()
		t.Error("it is reached by its address")
	}
	if len(a.Resolve("db.internal", dns.TypeA).Answer) > 0 {
		t.Error("a name without a line of [hosts] is resolved")
	}
}

// TestI16_ReloadsEndSandboxesConnections of which the called one's policy no longer has the rule; in the twin it has it.
func TestI16_ReloadsEndSandboxesConnections(t *testing.T) {
	t.Parallel()
	for after, stays := range map[string]bool{"": false, fromMe + "# edited\n": true} {
		a, b := pair(t, "web", toDB, fromMe)
		greets(t, b, 5432)
		conn, err := a.Dial(a.Lookup("db.internal"), 5432)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		if err := b.Gateway.Reload(gatewaytest.Policy(t, after)); err != nil {
			t.Fatal(err)
		}
		if stays {
			if n := len(b.Audit.Events(audit.PortFlow)); n > 0 {
				t.Error("the connection ended")
			}
			continue
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the connection goes on")
		}
		if ev := b.Audit.Wait(t, audit.PortFlow, 1)[0]; !strings.Contains(ev.Message, "no longer") {
			t.Errorf("the audit log says %+v", ev)
		}
	}
}

// TestResetsPassBetweenSandboxes, both ways, as do orderly ends, of which the first is a half-close.
func TestResetsPassBetweenSandboxes(t *testing.T) {
	t.Parallel()
	for _, reset := range []bool{true, false} {
		for _, callerFirst := range []bool{true, false} {
			a, b := pair(t, "web", toDB, fromMe)
			server, err := b.Guest.ListenTCP(5432)
			if err != nil {
				t.Fatal(err)
			}
			first, err := a.Dial(a.Lookup("db.internal"), 5432)
			if err != nil {
				t.Fatal(err)
			}
			second, err := server.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if !callerFirst {
				first, second = second, first
			}
			if _, err := first.Write([]byte("half of an upl")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(second, make([]byte, 14)); err != nil {
				t.Fatal(err)
			}
			_ = second.SetDeadline(time.Now().Add(time.Minute))
			if reset {
				resets := map[bool]*gatewaytest.World{true: a, false: b}[callerFirst]
				for _, ep := range resets.Guest.Stack.RegisteredEndpoints() {
					ep.Abort()
				}
				var late net.Error
				if _, err := io.Copy(io.Discard, second); err == nil || errors.As(err, &late) && late.Timeout() {
					t.Errorf("caller first %v: a reset came as %v", callerFirst, err)
				}
				continue
			}
			_ = first.(interface{ CloseWrite() error }).CloseWrite()
			if _, err := io.Copy(io.Discard, second); err != nil {
				t.Errorf("caller first %v: a half-close came as %v", callerFirst, err)
			}
			if _, err := second.Write([]byte("answer")); err != nil {
				t.Fatal(err)
			}
			_ = second.Close()
			if got, err := io.ReadAll(first); string(got) != "answer" || err != nil {
				t.Errorf("caller first %v: after a half-close %q came, %v", callerFirst, got, err)
			}
		}
	}
}

// TestClosedPortsOfSandboxesRefuse: the caller's guest sees no handshake that the other guest didn't make.
func TestClosedPortsOfSandboxesRefuse(t *testing.T) {
	t.Parallel()
	a, b := pair(t, "web", toDB, fromMe)
	if conn, err := a.Dial(a.Lookup("db.internal"), 5432); err == nil {
		_ = conn.Close()
		t.Error("a port that nobody listens on accepted")
	}
	if ev := b.Audit.Wait(t, audit.PortFlow, 1)[0]; ev.Action != "allow" || !strings.Contains(ev.Message, "doesn't answer") {
		t.Errorf("the audit log says %+v", ev)
	}
	a.Close()
	if ev := a.Audit.Wait(t, audit.FlowClose, 1)[0]; !strings.Contains(ev.Message, "doesn't answer") {
		t.Errorf("the caller's log says %+v", ev)
	}
}

// TestI11_EndedCallsOfSandboxesFreeTheirSlots, however they end: with slots that stay taken, a sandbox could call until nobody is let
// in any more.
func TestI11_EndedCallsOfSandboxesFreeTheirSlots(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from   string
		port   uint16
		answer error
		ok     bool
	}{
		"orderly":           {"web", 5432, nil, true},
		"caller gone":       {"web", 5432, errors.New("gone"), false},
		"nobody listens":    {"web", 5433, nil, false},
		"refused by policy": {"worm", 5432, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := gatewaytest.Start(t, strings.Replace(fromMe, "5432", "5432, 5433", 1))
			t.Cleanup(w.Close)
			w.Resolve("up.example", dns.TypeA) // the link is up then
			greets(t, w, 5432)
			for range 3 {
				ours, theirs := unixPair(t)
				most := -1
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					gateway.ServePeer(t.Context(), w.Gateway, theirs, c.from, c.port, func(error) error {
						most = gateway.InboundSlots(w.Gateway)
						return c.answer
					})
				}()
				if _, err := io.ReadFull(ours, make([]byte, 5)); (err == nil) != c.ok {
					t.Errorf("the greeting: %v", err)
				}
				_ = ours.Close()
				<-ended
				if n := gateway.InboundSlots(w.Gateway); n != 0 || most > 1 {
					t.Fatalf("%d slots stay taken, %d were", n, most)
				}
			}
		})
	}
}

// TestI15_ConnectionsToSandboxesTakeFromTheBudget, also those over which nothing is said: how often a guest connects can say something,
// too. The twin has no budget.
func TestI15_ConnectionsToSandboxesTakeFromTheBudget(t *testing.T) {
	t.Parallel()
	const attempts, allowed = 8, 4
	for limit, want := range map[string]int{"[limits]\negress_bytes = \"256\"\n": allowed, "": attempts} {
		a, b := pair(t, "web", toDB+limit, fromMe)
		greets(t, b, 5432)
		got, db := 0, a.Lookup("db.internal")
		for range attempts {
			if conn, err := a.Dial(db, 5432); err == nil {
				got++
				_ = conn.Close()
			}
		}
		if got != want {
			t.Errorf("%q: %d connections, want %d", limit, got, want)
		}
	}
}

// TestSandboxesAreReachedOverTCPOnly, and only where there are others: the caller's log says why not.
func TestSandboxesAreReachedOverTCPOnly(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 10)
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, toDB), func(cfg *gateway.Config) {
		cfg.DialSandbox = func(context.Context, string, uint16) (net.Conn, error) {
			asked <- struct{}{}
			return nil, errors.New("no such sandbox")
		}
	})
	c, err := w.Guest.DialUDP(netip.AddrPortFrom(w.Lookup("db.internal"), 5432))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if ev := w.Audit.Wait(t, audit.FlowClose, 1)[0]; !strings.Contains(ev.Message, "over TCP only") || len(asked) != 0 {
		t.Errorf("%d sandboxes were asked, the log says %+v", len(asked), ev)
	}
	alone := gatewaytest.Start(t, toDB)
	if conn, err := alone.Dial(alone.Lookup("db.internal"), 5432); err == nil {
		_ = conn.Close()
		t.Error("it connected where there are no others")
	}
	if ev := alone.Audit.Wait(t, audit.FlowClose, 1)[0]; !strings.Contains(ev.Message, "no other sandboxes") {
		t.Errorf("the log says %+v", ev)
	}
}

// TestCallersThatLeaveAreReset at the guest: a call that was given up before it was answered is no orderly end, and holds nothing.
func TestCallersThatLeaveAreReset(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, fromMe)
	w.Resolve("up.example", dns.TypeA) // the link is up then
	server, err := w.Guest.ListenTCP(5432)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := unixPair(t)
	defer ours.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		gateway.ServePeer(t.Context(), w.Gateway, theirs, "web", 5432, func(error) error { return errors.New("gone") })
	}()
	guest, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	_ = guest.SetReadDeadline(time.Now().Add(time.Minute))
	var late net.Error
	if _, err := guest.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || errors.As(err, &late) && late.Timeout() {
		t.Errorf("the guest reads %v, want a reset", err)
	}
	if ev := w.Audit.Wait(t, audit.PortFlow, 1)[0]; !strings.Contains(ev.Message, "has gone: gone") {
		t.Errorf("the log says %+v", ev)
	}
}
