package gateway_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// TestI6_LiveFlowsHoldTheirPins: an address has a bound of names, and the name that was pinned to it first goes at the
// bound, unless a flow lives by it.
func TestI6_LiveFlowsHoldTheirPins(t *testing.T) {
	t.Parallel()
	const names = 256 // of an address
	for _, live := range []bool{true, false} {
		w := gatewaytest.Start(t, "[[egress.allow]]\nhosts = [\"api.example.com\"]\nprotocol = \"tcp\"\nports = [9]\n"+
			"[[egress.allow]]\nhosts = [\"*.example.net\"]\nprotocol = \"tcp\"\nports = [10]\n[limits]\ndns_per_second = 10000\n")
		w.Serve(site+":9", func(c net.Conn) { _, _ = io.Copy(c, c) })
		w.Record("api.example.com. 60 IN A " + site)
		addr := w.Lookup("api.example.com")
		if live {
			c, err := w.Dial(addr, 9)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		for i := range names {
			name := fmt.Sprintf("n%d.example.net", i)
			w.Record(name + ". 60 IN A " + site)
			if m := w.Resolve(name, dns.TypeA); len(m.Answer) != 1 {
				t.Fatalf("%s: %v", name, m)
			}
		}
		c, err := w.Dial(addr, 9)
		if err == nil {
			_ = c.Close()
		}
		if (err == nil) != live {
			t.Errorf("while another flow lives (%v), a new one: %v", live, err)
		}
	}
}

// TestI11_FirstBytesTakeFromEgressBytes: what is read of a connection before its verdict leaves too.
func TestI11_FirstBytesTakeFromEgressBytes(t *testing.T) {
	t.Parallel()
	const budget = 1 << 10
	for _, limit := range []string{fmt.Sprintf("[limits]\negress_bytes = \"%d\"\n", budget), ""} {
		w := gatewaytest.Start(t, apiTLS+limit)
		w.Record("api.example.com. 60 IN A " + site)
		got := make(chan int, 1)
		w.Serve(site+":443", func(c net.Conn) {
			n, _ := c.Read(make([]byte, 8<<10))
			got <- n
		})
		c, err := w.Dial(w.Lookup("api.example.com"), 443)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		long := slices.Repeat([]string{strings.Repeat("p", 200)}, 2*budget/200)
		_ = tls.Client(c, &tls.Config{ServerName: "api.example.com", NextProtos: long, MinVersion: tls.VersionTLS12}).Handshake()
		if n := <-got; (n > budget) != (limit == "") {
			t.Errorf("%q: the server was sent %d bytes at first", limit, n)
		}
	}
}

// TestI16_ReloadEndsFlowsToAnotherTarget: where a name of [hosts] leads is a grant of the operator's, which goes with it.
func TestI16_ReloadEndsFlowsToAnotherTarget(t *testing.T) {
	t.Parallel()
	var targets [2]string
	for i := range targets {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		targets[i] = l.Addr().String()
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				go func() { _, _ = io.WriteString(c, "hello"); _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
			}
		}()
	}
	text := func(target string) string { return "[hosts]\n\"db.internal\" = \"" + target + "\"\n" }
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, text(targets[0])), func(c *gateway.Config) { c.Dialer = nil })
	c, err := w.Dial(w.Lookup("db.internal"), 5000)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	for n, want := range []uint64{0, 1} { // the same target, and another
		if err := w.Gateway.Reload(gatewaytest.Policy(t, text(targets[n]))); err != nil {
			t.Fatal(err)
		}
		if e := w.Audit.Wait(t, audit.PolicyReload, n+1)[n]; e.Count != want {
			t.Fatalf("reload %d ended %d flows, want %d", n, e.Count, want)
		}
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the flow to the old target: %v, want a reset", err)
	}
}
