package secretproxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestI3_EndlessHintsWhileRequestsFail: hints come from the transport's goroutine, which goes on
// when a request was given up. For the race detector.
func TestI3_EndlessHintsWhileRequestsFail(t *testing.T) {
	t.Parallel()
	w := wantsSecret(t, func(rw http.ResponseWriter, r *http.Request) {
		for i := 0; r.Context().Err() == nil && i < 2000; i++ {
			rw.Header().Set("Link", fmt.Sprint(i))
			rw.WriteHeader(http.StatusEarlyHints)
		}
	})
	for i := range 40 {
		body, feed := io.Pipe()
		fed := make(chan struct{})
		go func() {
			defer close(fed)
			_, _ = io.WriteString(feed, "begin")
			time.Sleep(time.Duration(i) * time.Millisecond / 2)
			_, _ = io.WriteString(feed, w.placeholder()) // a violation, in the middle of the hints
			_ = feed.Close()
		}()
		resp, err := w.client(apiHost, apiAddr, i%2 == 0).Do(request(t, "POST", "https://"+apiHost+"/", body))
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		_ = body.Close()
		<-fed
	}
	if strings.Contains(w.api.bytes(), w.placeholder()) {
		t.Error("the server got the placeholder")
	}
}
