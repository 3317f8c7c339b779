package gateway_test

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/gateway/gatewaytest"
)

// TestJourney takes one way through a live gateway, or none: scripts/journeys counts what it runs through.
func TestJourney(t *testing.T) {
	const policy = `[[egress.allow]]
hosts = ["api.example.com"]
methods = ["GET"]
paths = ["/**"]
[[egress.allow]]
hosts = ["raw.example.com"]
protocol = "tcp"
ports = [7]
[secrets.TOKEN]
from = "file:%"
in = ["header:Authorization"]
hosts = ["api.example.com"]
`
	journey := os.Getenv("MSB_JOURNEY")
	if journey == "" {
		t.Skip("scripts/journeys runs it")
	}
	value := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(value, []byte("real-value-of-the-token-0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(policy, "%", value, 1)
	w := gatewaytest.Start(t, text)
	w.Record("api.example.com. 60 IN A "+site, "raw.example.com. 60 IN A "+other)
	w.ServeHTTPS(site+":443", w.CA.Certificate("api.example.com"), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, r.Header.Get("Authorization"))
	}))
	w.Serve(other+":7", func(c net.Conn) { _, _ = io.Copy(c, c) })
	raw := func() {
		c, err := w.Dial(netip.MustParseAddr(other), 7)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	switch journey {
	case "setup":
	case "dns":
		if m := w.Resolve("raw.example.com", dns.TypeA); len(m.Answer) != 1 {
			t.Fatal(m)
		}
	case "tcp":
		w.Lookup("raw.example.com")
		raw()
	case "https":
		req, _ := http.NewRequest(http.MethodGet, "https://api.example.com/x", nil)
		req.Header.Set("Authorization", "Bearer "+w.Gateway.Placeholders()["TOKEN"])
		resp, err := w.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "Bearer "+w.Gateway.Placeholders()["TOKEN"] {
			t.Fatal(string(b), err)
		}
	case "reload":
		next := gatewaytest.Policy(t, text)
		next.Limits.TCPConnections = 17
		if err := w.Gateway.Reload(next); err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatalf("no journey %q", journey)
	}
	time.Sleep(100 * time.Millisecond) // what ends behind the journey is counted too
}
