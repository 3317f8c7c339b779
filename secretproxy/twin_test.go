package secretproxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// TestI9_EqualValuesKeepTheirHosts: two secrets have one value and a host each. Answers hold the first one's placeholder, which
// stands for the value at the second one's host too, in its places only. Its twin is a secret of another value.
func TestI9_EqualValuesKeepTheirHosts(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{true, false} {
		value := realValue
		if !same {
			value = "another-value-of-its-own-0123"
		}
		second := secretOf(t, "OTHER", value, header("X-Token"))
		second.Hosts = []policies.SecretHost{{Pattern: hostname.MustParsePattern(evilHost)}}
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, r.Header.Get("X-Token"))
		}, withSecret(secretIn(t, header("Authorization"))), withSecret(second))
		c := w.client(evilHost, evilAddr, false)
		resp, echo := do(t, c, request(t, "GET", "https://"+evilHost+"/", nil, "X-Token", w.proxy.Placeholders()["OTHER"]))
		if want := w.proxy.Placeholders()["GITHUB_TOKEN"]; resp.StatusCode != http.StatusOK || same != (echo == want) {
			t.Fatalf("same value %v: %s, %q", same, resp.Status, echo)
		}
		resp, _ = do(t, c, request(t, "GET", "https://"+evilHost+"/", nil, "X-Token", w.placeholder()))
		if got := resp.StatusCode == http.StatusOK; got != same || same != strings.Contains(w.evil.bytes(), realValue) {
			t.Errorf("same value %v, the first placeholder in the second's place: %s; the server saw %q", same, resp.Status, w.evil.bytes())
		}
		resp, _ = do(t, c, request(t, "GET", "https://"+evilHost+"/", nil, "Authorization", w.placeholder()))
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("same value %v, the first placeholder in its own place at the second's host: %s", same, resp.Status)
		}
		for _, e := range w.events.of(audit.SecretSwap) {
			if e.Secret != "OTHER" {
				t.Errorf("same value %v: swapped as %s", same, e.Secret)
			}
		}
	}
}
