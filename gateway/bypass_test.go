package gateway_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/gateway/gatewaytest"
)

// TestI9_BypassedHostsGetNoValue: the client trusts the internet's authority alone, so
// that it would notice a leaf of the sandbox's; where nothing is opened, a placeholder stays what it is.
func TestI9_BypassedHostsGetNoValue(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte("the-real-value-of-a-bypassed-host"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := gatewaytest.Start(t, `
[[egress.allow]]
hosts = ["*.example.com"]
protocol = "https"
[tls]
inspect = "all"
bypass = ["pinned.example.com"]
[secrets.TOKEN]
from = "file:`+file+`"
hosts = ["opened.example.com"]
in = ["header:Authorization"]
`)
	w.Record("pinned.example.com. 60 IN A "+site, "opened.example.com. 60 IN A "+other)
	seen := func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, r.Header.Get("Authorization"))
	}
	w.ServeHTTPS(site+":443", w.CA.Certificate("pinned.example.com"), http.HandlerFunc(seen))
	w.ServeHTTPS(other+":443", w.CA.Certificate("opened.example.com"), http.HandlerFunc(seen))
	client := w.Client()
	transport, ok := client.Transport.(*http.Transport)
	if !ok {
		t.Fatal("the client has another transport")
	}
	transport.TLSClientConfig.RootCAs = w.CA.Pool()
	placeholder := w.Gateway.Placeholders()["TOKEN"]
	if status, got := get(t, client, "https://pinned.example.com/", "Authorization", placeholder); status != http.StatusOK || got != placeholder {
		t.Errorf("status %d; the server received %q, want the placeholder", status, got)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://opened.example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := client.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Error("a host that isn't bypassed was not opened, so this test shows nothing")
	}
}
