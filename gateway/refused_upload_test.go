package gateway_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// TestI11_RefusedUploadsCountAsEgress: a guest uploads bodies that are refused once they were read, because a
// placeholder at their end may not stand there. They use the budget up as if they had left.
func TestI11_RefusedUploadsCountAsEgress(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "value")
	for suffix, value := range map[string]string{"": traceless, ".header": "another-" + traceless} { // of one value, each may stand for the other
		if err := os.WriteFile(file+suffix, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, `
[[egress.allow]]
hosts = ["api.example.com"]
protocol = "https"
[tls]
inspect = "all"
[limits]
egress_bytes = "1M"
[secrets.BODY]
from = "file:`+file+`"
hosts = ["api.example.com"]
in = ["body"]
[secrets.HEADER]
from = "file:`+file+`.header"
hosts = ["api.example.com"]
in = ["header:Authorization"]
`), func(*gateway.Config) {})
	w.Record("api.example.com. 60 IN A " + site)
	w.ServeHTTPS(site+":443", w.CA.Certificate("api.example.com"), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	upload := func(end string) int {
		resp, err := w.Client().Post("https://api.example.com/", "text/plain", strings.NewReader(strings.Repeat("x", 300<<10)+end))
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for i := range 3 {
		if status := upload(w.Gateway.Placeholders()["HEADER"]); status != http.StatusForbidden {
			t.Fatalf("upload %d: status %d, want 403", i, status)
		}
	}
	if status := upload(""); status == http.StatusOK {
		t.Error("1,200 KiB went, 900 of them in refused requests, with a budget of 1 MiB")
	}
}
