package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/msb-project/msb/gateway/gatewaytest"
)

func TestI10_ValuesAreMaskedEverywhere(t *testing.T) {
	t.Parallel()
	const value = "real-value-of-the-token-0123456789"
	w := gatewaytest.Start(t, withSecret+"\n[[egress.allow]]\nname = \"plain\"\nhosts = [\"api.example.com\"]\nprotocol = \"http\"\nports = [80]\n")
	w.Record("api.example.com. 60 IN A "+site, "other.example.com. 60 IN A "+other)
	// One server under two names and two protocols, which shows the last credentials that it was sent.
	var last atomic.Value
	last.Store("")
	server := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if a := r.Header.Get("Authorization"); a != "" {
			last.Store(a)
		}
		_, _ = io.WriteString(rw, "the last was "+last.Load().(string))
	})
	w.ServeHTTPS(site+":443", w.CA.Certificate("api.example.com"), server)
	w.ServeHTTPS(other+":443", w.CA.Certificate("other.example.com"), server)
	w.ServeHTTP(site+":80", server)
	client := w.Client()
	req, _ := http.NewRequest(http.MethodGet, "https://api.example.com/", nil)
	req.Header.Set("Authorization", "Bearer "+w.Gateway.Placeholders()["TOKEN"])
	if resp, err := client.Do(req); err != nil {
		t.Fatal(err)
	} else {
		_ = resp.Body.Close()
	}
	if last.Load() != "Bearer "+value {
		t.Fatalf("the test is moot: the server got %q", last.Load())
	}
	for _, url := range []string{"https://api.example.com/", "https://other.example.com/", "http://api.example.com/"} {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if strings.Contains(string(body), value) || !strings.Contains(string(body), w.Gateway.Placeholders()["TOKEN"]) {
			t.Errorf("%s: %s", url, body)
		}
	}
}
