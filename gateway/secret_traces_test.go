package gateway_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

const traceless = "v4lue+That/leaves=n0trace%0123456789"

// spellings of the value, as a search for leaks must know them.
func spellings(value string) []string {
	b := base64.StdEncoding.EncodeToString([]byte(value))
	return []string{
		value, url.QueryEscape(value), url.PathEscape(value), hex.EncodeToString([]byte(value)), strings.ToUpper(value),
		b[:len(b)-4], base64.RawURLEncoding.EncodeToString([]byte(value))[:40],
		base64.StdEncoding.EncodeToString([]byte("user:" + value))[8:44], strings.ReplaceAll(value, "/", `\/`),
	}
}

// TestI8_RunsLeaveNoTraceOfValues uses a secret in every place and on every path of failure, with a
// capture, an audit log and the process' log on, and then looks for the value in all that was written, in
// what the guest got, in the goroutines and in a child's environment. It isn't parallel: it takes the
// process' log.
func TestI8_RunsLeaveNoTraceOfValues(t *testing.T) {
	var logged, audited, captured bytes.Buffer
	log.SetOutput(&logged)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte(traceless), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := gatewaytest.Policy(t, `
[[egress.allow]]
hosts = ["api.example.com", "broken.example.com", "other.example.com"]
protocol = "https"
[tls]
inspect = "all"
[secrets.TOKEN]
from = "file:`+file+`"
hosts = ["api.example.com", "broken.example.com"]
in = ["header:Authorization", "basic", "query:key", "body"]
placeholder = "tok_{32}"
`)
	sink := audit.NewLog(&audited, audit.Options{})
	tap, writer := gateway.NewCaptureTap(), capture.NewWriter(&captured, capture.Options{})
	tap.Start(writer)
	w := gatewaytest.StartWith(t, policy, func(c *gateway.Config) { c.Audit, c.Capture = sink, tap })
	w.Record("api.example.com. 60 IN A "+site, "other.example.com. 60 IN A "+other, "broken.example.com. 60 IN A 93.184.215.77")
	seen := serveEcho(w)
	w.ServeHTTPS("93.184.215.77:443", w.CA.Certificate("another.example.com"), http.NotFoundHandler())
	w.ServeHTTPS(other+":443", w.CA.Certificate("other.example.com"), http.NotFoundHandler())
	got := useEverywhere(t, w)
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	env, err := exec.CommandContext(t.Context(), "/usr/bin/env").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	broken := *policy
	broken.Secrets = slices.Clone(policy.Secrets)
	broken.Secrets[0].Hosts = nil
	broken.Secrets[0].Placeholder = "{1}"
	tap.Start(nil)
	for _, close := range []func() error{writer.Close, sink.Close} {
		if err := close(); err != nil {
			t.Fatal(err)
		}
	}
	if reached := seen(); strings.Count(reached, traceless) < 4 {
		t.Fatalf("the run proves nothing: the server got the value in %d places, want 4 at least: %q", strings.Count(reached, traceless), reached)
	}
	if audited.Len() == 0 || captured.Len() == 0 || !strings.Contains(audited.String(), "secret.violation") {
		t.Fatalf("the run proves nothing: %d bytes of audit, %d of capture", audited.Len(), captured.Len())
	}
	reloaded := fmt.Sprint(w.Gateway.Reload(&broken))
	log.SetOutput(io.Discard) // under the logger's lock: nobody writes to logged from here on
	written := map[string]string{
		"audit log": audited.String(), "capture": captured.String(), "process log": logged.String(), "goroutines": string(stacks),
		"a child's environment": string(env), "the guest's answers": got,
		"formatted policy": fmt.Sprintf("%+v %#v", *policy, policy.Secrets), "reload's error": reloaded,
	}
	for place, text := range written {
		for _, spelled := range spellings(traceless) {
			if i := strings.Index(text, spelled); i >= 0 {
				t.Errorf("%s holds the value as %q: …%q", place, spelled, text[max(0, i-80):i])
			}
		}
	}
}

// serveEcho repeats requests in headers, trailers and bodies, and as errors.
func serveEcho(w *gatewaytest.World) (seen func() string) {
	requests := make(chan string, 64)
	w.ServeHTTPS(site+":443", w.CA.Certificate("api.example.com"), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		all := fmt.Sprintf("%s %s %q %s:%s %s", r.Header.Get("Authorization"), r.URL.RawQuery, r.URL.Query(), user, password, body)
		requests <- all
		rw.Header().Set("X-Echo", r.Header.Get("Authorization"))
		rw.Header().Set("Location", "https://other.example.com/?key="+r.URL.Query().Get("key"))
		status := http.StatusOK
		switch r.URL.Path {
		case "/401":
			status = http.StatusUnauthorized
		case "/500":
			status = http.StatusInternalServerError
		case "/abort":
			_, _ = io.WriteString(rw, all)
			panic(http.ErrAbortHandler)
		}
		rw.WriteHeader(status)
		_, _ = io.WriteString(rw, all)
	}))
	return func() string {
		close(requests)
		var all []string
		for r := range requests {
			all = append(all, r)
		}
		return strings.Join(all, "\n")
	}
}

// useEverywhere sends the placeholder in every listed place and some others, and returns what came back.
func useEverywhere(t *testing.T, w *gatewaytest.World) string {
	t.Helper()
	p := w.Gateway.Placeholders()["TOKEN"]
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+p))
	var got strings.Builder
	for _, c := range []*http.Client{w.Client(), proxied(w, w.Gateway.Link().Gateway4)} {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		for _, r := range []struct{ url, auth, body string }{
			{"https://api.example.com/", "Bearer " + p, ""},
			{"https://api.example.com/", basic, ""},
			{"https://api.example.com/?key=" + p, "", ""},
			{"https://api.example.com/", "", `{"token":"` + p + `"}`},
			{"https://api.example.com/401", "Bearer " + p, p},
			{"https://api.example.com/500", basic, p},
			{"https://api.example.com/abort", "Bearer " + p, p},
			{"https://api.example.com/" + p, "Bearer " + p, ""},        // a violation
			{"https://other.example.com/", "Bearer " + p, p},           // another
			{"https://broken.example.com/?key=" + p, "Bearer " + p, p}, // 502: the certificate is another's
		} {
			req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, r.url, strings.NewReader(r.body))
			if err != nil {
				t.Fatal(err)
			}
			if r.auth != "" {
				req.Header.Set("Authorization", r.auth)
			}
			if r.body != "" {
				req.Header.Set("Content-Type", "application/json")
			}
			resp, err := c.Do(req)
			if err != nil {
				fmt.Fprintln(&got, err)
				continue
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			head, _ := json.Marshal(resp.Header)
			fmt.Fprintf(&got, "%d %s %s %v\n", resp.StatusCode, head, body, err)
		}
	}
	return got.String()
}
