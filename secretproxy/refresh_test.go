package secretproxy

import (
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/policies"
)

// A command is run again after a 401 if the policy asks for it, and the very next request has what it says.
func TestCommandsAreRunAgainAfter401(t *testing.T) {
	t.Parallel()
	const first, second = "command-value-1", "command-value-2"
	for _, asked := range []bool{true, false} {
		var clock atomic.Int64
		clock.Store(time.Now().UnixNano())
		s := secretIn(t, header("Authorization"))
		s.From = policies.Source{
			Kind: policies.FromCommand, RefreshOn401: asked,
			Argv: []string{"sh", "-c", `echo x >> "$0"; echo "command-value-$(wc -l < "$0" | tr -d ' ')"`, filepath.Join(t.TempDir(), "runs")},
		}
		var requests atomic.Int32
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			if requests.Add(1) == 2 {
				rw.WriteHeader(http.StatusUnauthorized)
			}
			echo(rw, r)
		}, withSecret(s), func(_ *policies.Policy, c *Config) {
			c.now = func() time.Time { return time.Unix(0, clock.Load()) }
		})
		c := w.client(apiHost, apiAddr, true)
		want := []string{first, first, first}
		if asked {
			want[2] = second
		}
		for i, value := range want {
			before := len(w.api.bytes())
			_, body := do(t, c, request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", w.placeholder()))
			if got := w.api.bytes()[before:]; !strings.Contains(got, "Authorization: "+value+"\n") {
				t.Errorf("asked %v, request %d: the server got %q, want %s", asked, i, got, value)
			}
			if strings.Contains(body, "command-value") || !strings.Contains(body, w.placeholder()) {
				t.Errorf("asked %v, request %d: the guest got %q", asked, i, body)
			}
			clock.Add(int64(time.Minute)) // past the bound on runs that a guest causes
		}
	}
}
