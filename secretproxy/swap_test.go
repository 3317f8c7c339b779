package secretproxy

import (
	"net/http"
	"strings"
	"testing"
)

func TestI9_ValuesComeBackMasked(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
		c := w.client(apiHost, apiAddr, http2)
		resp, body := do(t, c, request(t, http.MethodGet, "https://"+apiHost+"/repos", nil, "Authorization", "Bearer "+w.placeholder()))
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("http2 %v: status %d: %s", http2, resp.StatusCode, body)
		}
		if want := 1 + btoi(http2); resp.ProtoMajor != want {
			t.Errorf("http2 %v: answered over HTTP/%d", http2, resp.ProtoMajor)
		}
		if !strings.Contains(w.api.bytes(), "Authorization: Bearer "+realValue) {
			t.Errorf("http2 %v: the server got %q", http2, w.api.bytes())
		}
		if strings.Contains(body, realValue) || resp.Header.Get("X-Echo-Authorization") != "Bearer "+w.placeholder() {
			t.Errorf("http2 %v: the guest got %q, %q", http2, body, resp.Header)
		}
		w.noLeak()
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
