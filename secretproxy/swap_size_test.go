package secretproxy

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

// TestOvergrownBodiesAreRefused: placeholders of 16 bytes that stand for 8 KiB each.
func TestOvergrownBodiesAreRefused(t *testing.T) {
	t.Parallel()
	s := secretIn(t, policies.Place{Kind: policies.InBody})
	s.Placeholder = "{16}"
	if err := os.WriteFile(s.From.Value, []byte(strings.Repeat("v4lU", 2048)), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(rw, n)
	}, withSecret(s))
	for count, want := range map[int]string{100: fmt.Sprint(100*8192 + 3), 1000: `"reason":"body"`} {
		body := strings.Repeat(w.placeholder(), count) + "END"
		resp, got := do(t, w.client(apiHost, apiAddr, false), request(t, "POST", "https://"+apiHost+"/", strings.NewReader(body)))
		if !strings.Contains(got, want) || (resp.StatusCode == http.StatusOK) != (count == 100) {
			t.Errorf("%d values: status %d %s, want %s", count, resp.StatusCode, got, want)
		}
	}
}
