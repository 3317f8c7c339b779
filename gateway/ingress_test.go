package gateway_test

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// elsewhere is a listener whose clients seem to be at another address.
type elsewhere struct {
	net.Listener
	client string
}

type seemingConn struct {
	*net.TCPConn
	client netip.AddrPort
}

func (c seemingConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.client) }

// Accept implements net.Listener.
func (l elsewhere) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return seemingConn{c.(*net.TCPConn), netip.MustParseAddrPort(l.client)}, nil
}

// asksAs serves the guest's port 8080, connects as a client of that address, and reports whether an answer came.
func asksAs(t *testing.T, w *gatewaytest.World, client string) (answered bool, c net.Conn) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.Resolve("up.example", dns.TypeA) // the link is up then
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		gateway.Publish(t.Context(), w.Gateway, elsewhere{inner, client}, 8080)
	}()
	t.Cleanup(func() { _ = inner.Close(); <-ended })
	c, err = net.Dial("tcp", inner.Addr().String())
	if err != nil {
		return false, nil
	}
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.ReadFull(c, make([]byte, 5))
	return err == nil, c
}

// greets serves a port of w's guest: each client is sent five bytes, then what it sends, and its connection stays.
func greets(t *testing.T, w *gatewaytest.World, port uint16) {
	t.Helper()
	server, err := w.Guest.ListenTCP(port)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello"))
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
}

const office = "[[ingress.allow]]\nname = \"office\"\ncidrs = [\"192.168.10.0/24\", \"fd00:10::/64\"]\n"

// TestI15_ClientsNeedAnIngressRule: who may connect, and what the audit log says. Without rules it is this machine alone.
func TestI15_ClientsNeedAnIngressRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy, client string
		ok             bool
		rule, reason   string
	}{
		{"", "192.168.10.7:5000", false, "", "no_rule"},
		{"", "127.0.0.1:5000", true, "", "this_machine"},
		{"", "[::1]:5000", true, "", "this_machine"},
		{office, "192.168.10.7:5000", true, "office", "rule"},
		{office, "[fd00:10::7]:5000", true, "office", "rule"},
		{office, "192.168.11.7:5000", false, "", "no_rule"},
		{office, "127.0.0.1:5000", true, "", "this_machine"},
		{"[egress]\ndefault = \"public\"\nmode = \"report\"\n", "192.168.10.7:5000", false, "", "no_rule"},
	} {
		w := gatewaytest.Start(t, c.policy)
		greets(t, w, 8080)
		ok, conn := asksAs(t, w, c.client)
		if ok != c.ok {
			t.Errorf("%s: answered %v, want %v\n%s", c.client, ok, c.ok, c.policy)
		}
		if conn != nil {
			_ = conn.Close()
		}
		w.Close()
		ev := w.Audit.Wait(t, audit.PortFlow, 1)[0]
		if (ev.Action == "allow") != c.ok || ev.Rule != c.rule || ev.Reason != c.reason || ev.Client.String() != c.client || ev.Port != 8080 {
			t.Errorf("the audit log says %+v", ev)
		}
		if strings.Contains(ev.Message, "[[ingress.allow]]") == c.ok {
			t.Errorf("%s: %q", c.client, ev.Message)
		}
		var denied []gateway.DeniedCount
		if !c.ok {
			denied = []gateway.DeniedCount{{Kind: audit.PortFlow, Reason: c.reason, Count: 1}}
		}
		got := slices.DeleteFunc(w.Gateway.Stats().Denied, func(d gateway.DeniedCount) bool { return d.Kind != audit.PortFlow })
		if !slices.Equal(got, denied) {
			t.Errorf("%s: counted %+v, want %+v", c.client, got, denied)
		}
	}
}

// TestI16_ReloadsEndRefusedClients takes the rule away under a connection; in the twin it stays.
func TestI16_ReloadsEndRefusedClients(t *testing.T) {
	t.Parallel()
	for after, stays := range map[string]bool{"": false, office + "# edited\n": true} {
		w := gatewaytest.Start(t, office)
		greets(t, w, 8080)
		ok, conn := asksAs(t, w, "192.168.10.7:5000")
		if !ok {
			t.Fatal("no answer")
		}
		if err := w.Gateway.Reload(gatewaytest.Policy(t, after)); err != nil {
			t.Fatal(err)
		}
		if !stays {
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("the connection goes on")
			}
			if ev := w.Audit.Wait(t, audit.PortFlow, 1)[0]; !strings.Contains(ev.Message, "no longer") {
				t.Errorf("the audit log says %+v", ev)
			}
			continue
		}
		if n := len(w.Audit.Events(audit.PortFlow)); n > 0 {
			t.Error("the connection ended")
		}
	}
}

// TestClientsAreInTheCapture: a comment beside the flow's packets names the client and the rule.
func TestClientsAreInTheCapture(t *testing.T) {
	t.Parallel()
	c := gateway.NewCaptureTap()
	var file bytes.Buffer
	out := capture.NewWriter(&file, capture.Options{})
	c.Start(out)
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, office), func(cfg *gateway.Config) { cfg.Capture = c })
	greets(t, w, 8080)
	ok, client := asksAs(t, w, "192.168.10.7:5000")
	if !ok {
		t.Fatal("no answer")
	}
	for range 4 { // the guest's server may have sent its bytes before the verdict, which then waits for the next packet
		_, _ = client.Write([]byte("x"))
		if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	c.Start(nil)
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	var comments []string
	r, err := capture.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if err != nil {
			break
		}
		comments = append(comments, rec.Comments...)
	}
	text := strings.Join(comments, "\n")
	const want = `msb port=0 action=allow rule=office reason=rule client="192.168.10.7:5000"`
	if !strings.Contains(text, want) || strings.Count(text, "msb port=") != 1 {
		t.Errorf("the comments are\n%s\nwant one %s", text, want)
	}
	if v, ok := capture.ParseVerdict(want); !ok || v.Kind != capture.KindPort || v.Client != "192.168.10.7:5000" {
		t.Errorf("it is read as %+v", v)
	}
}
