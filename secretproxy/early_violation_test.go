package secretproxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
)

// TestI9_LateViolationsAreReported: a server that colludes with the guest answers before it has read the body,
// so that no refusal can be the answer to what comes in it. Each violation has one line, and ends the sandbox where
// the policy says so; a body without one has none.
func TestI9_LateViolationsAreReported(t *testing.T) {
	t.Parallel()
	for _, upstream2 := range []bool{true, false} {
		s := secretIn(t, header("Authorization"))
		s.OnViolation = policies.Terminate
		for _, http2 := range []bool{true, false} {
			for _, early := range []bool{true, false} {
				for _, place := range []string{"", "body", "trailer:X-Last"} {
					what := fmt.Sprintf("HTTP/2 server %v, HTTP/2 guest %v, early %v, %q", upstream2, http2, early, place)
					w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
						if early {
							_ = http.NewResponseController(rw).EnableFullDuplex()
							rw.WriteHeader(http.StatusOK)
							_ = http.NewResponseController(rw).Flush()
						}
						_, _ = io.Copy(io.Discard, r.Body)
					}, withSecret(s))
					if !upstream2 {
						w.api.TLS.NextProtos = []string{"http/1.1"}
					}
					body, feed := io.Pipe()
					r := request(t, "POST", "https://"+apiHost+"/", body)
					r.Trailer = http.Header{"X-Last": nil}
					answered := make(chan struct{})
					go func() {
						_, _ = io.WriteString(feed, "begin ")
						if early {
							<-answered
						}
						if place == "body" {
							_, _ = io.WriteString(feed, w.placeholder())
						} else if place != "" {
							r.Trailer.Set("X-Last", w.placeholder())
						}
						_, _ = io.WriteString(feed, " end")
						_ = feed.Close()
					}()
					resp, err := w.client(apiHost, apiAddr, http2).Do(r)
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					close(answered)
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					if want := early || place == ""; (resp.StatusCode == http.StatusOK) != want {
						t.Errorf("%s: status %d", what, resp.StatusCode)
					}
					terminated := func() int {
						w.mu.Lock()
						defer w.mu.Unlock()
						return len(w.terminated)
					}
					violations := func() []audit.Event { return w.events.of(audit.SecretViolation) }
					if place != "" {
						eventually(t, what+": the end of the sandbox", func() bool { return terminated() > 0 })
					}
					_ = w.proxy.Close()
					if got := violations(); place == "" && len(got)+terminated() > 0 || place != "" && (len(got) != 1 || terminated() != 1 || got[0].Place != place || got[0].Secret != "GITHUB_TOKEN") {
						t.Errorf("%s: ended %d times; %+v", what, terminated(), got)
					}
					if got := w.events.of(audit.HTTPRequest); len(got) != 1 {
						t.Errorf("%s: %d requests: %+v", what, len(got), got)
					}
					if strings.Contains(w.api.bytes(), w.placeholder()) {
						t.Errorf("%s: the server got the placeholder", what)
					}
				}
			}
		}
	}
}
