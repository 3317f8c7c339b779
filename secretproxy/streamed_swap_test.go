package secretproxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
)

// TestI1_ValuesInStreamedBodiesAreAudited: a body that isn't held gets its values while it goes out, after the head
// and beside the answer. The log has one line for each such request and secret, and none without a placeholder.
func TestI1_ValuesInStreamedBodiesAreAudited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).EnableFullDuplex()
		rw.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(rw).Flush()
		_, _ = io.Copy(rw, r.Body)
	}, withSecret(secretIn(t, header("Authorization"), policies.Place{Kind: policies.InBody})))
	for _, http2 := range []bool{false, true} {
		for _, c := range []struct {
			name         string
			length       int // 0: without Content-Length
			text, header string
			lines        int
		}{
			{"no placeholder", 0, "none", "", 0},
			{"chunked", 0, w.placeholder(), "", 1},
			{"chunked, and in the head", 0, w.placeholder(), "Bearer " + w.placeholder(), 1},
			{"large", 2 * smallBody, w.placeholder(), "", 1},
			{"small", 4 << 10, w.placeholder(), "", 1},
		} {
			before := len(w.events.of(audit.SecretSwap))
			body, feed := io.Pipe()
			r := request(t, "POST", "https://"+apiHost+"/"+strings.ReplaceAll(c.name, " ", "-"), body)
			if c.header != "" {
				r.Header.Set("Authorization", c.header)
			}
			if c.length > 0 {
				r.ContentLength = int64(c.length)
			}
			go func() {
				half := strings.Repeat("x", max(c.length, 64)/2)
				_, _ = io.WriteString(feed, half+c.text+c.text)
				_, _ = io.WriteString(feed, half[min(len(half), 2*len(c.text)):])
				_ = feed.Close()
			}()
			if resp, got := do(t, w.client(apiHost, apiAddr, http2), r); resp.StatusCode != http.StatusOK || strings.Contains(got, realValue) || !strings.Contains(got, c.text) {
				t.Errorf("http2 %v, %s: status %d, %d bytes", http2, c.name, resp.StatusCode, len(got))
			}
			events := w.events.of(audit.SecretSwap)[before:]
			if len(events) != c.lines || c.lines == 1 && (events[0].Secret != "GITHUB_TOKEN" || events[0].Host != apiHost || events[0].Path != r.URL.Path) {
				t.Errorf("http2 %v, %s: %d lines: %+v", http2, c.name, len(events), events)
			}
		}
	}
}
