package secretproxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

// TestI9_RequestsKeepTheirValueOverReloads: its head has gone out with the value when the policy is exchanged, and its
// body is still to come.
func TestI9_RequestsKeepTheirValueOverReloads(t *testing.T) {
	t.Parallel()
	s := secretIn(t, header("Authorization"), policies.Place{Kind: policies.InBody})
	begun := make(chan struct{})
	got := make(chan string, 1)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("Authorization") + " " + string(body)
	}, withSecret(s))
	body, more := io.Pipe()
	go func() {
		_, _ = io.WriteString(more, strings.Repeat("x", 64<<10))
		<-begun
		next := policies.Default()
		next.Secrets = []policies.Secret{s}
		if err := w.proxy.Reload(next, w.judge); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(more, " "+w.placeholder())
		_ = more.Close()
	}()
	resp, answer := do(t, w.client(apiHost, apiAddr, true), request(t, "POST", "https://"+apiHost+"/", body, "Authorization", w.placeholder()))
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", resp.StatusCode, answer)
	}
	head, rest, _ := strings.Cut(<-got, " ")
	if head != realValue || strings.TrimLeft(rest, "x") != " "+realValue {
		t.Errorf("the server was sent %q in the head, and at the end of the body %q", head, strings.TrimLeft(rest, "x"))
	}
}
