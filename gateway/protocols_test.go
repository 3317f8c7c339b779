package gateway_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/msb-project/msb/gateway/gatewaytest"
)

// TestTLSAndHTTPOnOnePort has rules for both, whose requests are inspected, in either order.
func TestTLSAndHTTPOnOnePort(t *testing.T) {
	t.Parallel()
	rule := func(protocol string) string {
		return "[[egress.allow]]\nname = \"" + protocol + "\"\nhosts = [\"web.example.com\"]\nports = [8080]\nprotocol = \"" + protocol + "\"\nmethods = [\"GET\"]\n"
	}
	for name, tt := range map[string]struct {
		policy string
		passes map[string]bool
	}{
		"both":             {rule("https") + rule("http"), map[string]bool{"http": true, "https": true}},
		"in another order": {rule("http") + rule("https"), map[string]bool{"http": true, "https": true}},
		"one (twin)":       {rule("http"), map[string]bool{"http": true}},
		"the other (twin)": {rule("https"), map[string]bool{"https": true}},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+"/"+scheme, func(t *testing.T) {
				t.Parallel()
				w := gatewaytest.Start(t, tt.policy)
				w.Record("web.example.com. 60 IN A " + site)
				hello := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "hello") })
				if scheme == "http" {
					w.ServeHTTP(site+":8080", hello)
				} else {
					w.ServeHTTPS(site+":8080", w.CA.Certificate("web.example.com"), hello)
				}
				c := w.Client()
				status, body := askFor(t, c, http.MethodGet, scheme+"://web.example.com:8080/", "")
				if passed := status == http.StatusOK && body == "hello"; passed != tt.passes[scheme] {
					t.Errorf("GET: %d %q; want it to pass: %v", status, body, tt.passes[scheme])
				}
				if status, body := askFor(t, c, http.MethodPut, scheme+"://web.example.com:8080/", ""); body == "hello" {
					t.Errorf("PUT: %d %q", status, body)
				}
			})
		}
	}
}
