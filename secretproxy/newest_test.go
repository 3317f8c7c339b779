package secretproxy

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/policies"
)

// TestI10_SmallAnswersTakeTheNewestValues: an answer that is masked in one piece is under way when a value becomes
// known, with the value in what is still to come or in what came before.
func TestI10_SmallAnswersTakeTheNewestValues(t *testing.T) {
	t.Parallel()
	const second, size = "ghp_S3c0ndT0k3nAfterTheR0tati0n", 60_000
	for _, where := range []string{"head", "body", "trailer"} {
		for _, way := range []string{"reload", "rotation", "mint"} {
			var clock atomic.Int64
			clock.Store(time.Now().UnixNano())
			s := secretIn(t, header("Authorization"))
			s.Mint = &policies.Mint{Path: "/token", Fields: []string{"access_token"}}
			known := make(chan struct{})
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/token":
					_, _ = io.WriteString(rw, `{"access_token":"`+second+`"}`)
					return
				case "/":
					return
				}
				put := func(place string) string {
					if place == where {
						return second
					}
					return "none"
				}
				body := "from " + put("body")
				body += strings.Repeat(" ", size-len(body))
				rw.Header().Set("X-Echo", put("head"))
				rw.Header().Set("Content-Length", strconv.Itoa(size))
				_, _ = io.WriteString(rw, body[:1])
				_ = http.NewResponseController(rw).Flush()
				<-known
				_, _ = io.WriteString(rw, body[1:])
				rw.Header().Set(http.TrailerPrefix+"X-Trailer", put("trailer"))
			}, withSecret(s), func(_ *policies.Policy, c *Config) { c.now = func() time.Time { return time.Unix(0, clock.Load()) } })
			c := w.client(apiHost, apiAddr, true)
			do(t, c, request(t, "GET", "https://"+apiHost+"/", nil))
			before := w.proxy.Stats().Held
			got := make(chan string, 1)
			go func() {
				resp, body := do(t, c, request(t, "GET", "https://"+apiHost+"/poll", nil))
				got <- resp.Header.Get("X-Echo") + body + resp.Trailer.Get("X-Trailer")
			}()
			// Its body is waited for: what waits in the transport and what it is read into is counted.
			eventually(t, "the answer isn't read", func() bool { return w.proxy.Stats().Held >= before+copySize+3*size })
			placeholder := w.placeholder
			switch way {
			case "reload":
				writeValue(t, &s, second)
				reload(t, w, s)
			case "rotation":
				writeValue(t, &s, second)
				clock.Add(int64(time.Minute))
				do(t, c, request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", w.placeholder()))
			case "mint":
				do(t, c, request(t, "GET", "https://"+apiHost+"/token", nil))
				placeholder = func() string { return keptPlaceholder(w, second) }
			}
			close(known)
			if text := <-got; strings.Contains(text, second) || !strings.Contains(text, placeholder()) {
				t.Errorf("%s, %s: the guest got %q", where, way, strings.TrimRight(text, " "))
			}
		}
	}
}
