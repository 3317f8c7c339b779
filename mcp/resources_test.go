package mcp

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/sandbox"
)

// reads reads a resource: its text, or its error.
func reads(t *testing.T, c *sdk.ClientSession, uri string) string {
	t.Helper()
	r, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
	if err != nil {
		return "error: " + err.Error()
	}
	if len(r.Contents) != 1 || r.Contents[0].URI != uri || r.Contents[0].MIMEType == "" {
		t.Errorf("%s: %+v", uri, r.Contents)
	}
	return r.Contents[0].Text
}

// TestResourcesAreListedAndRead in both eras.
func TestResourcesAreListedAndRead(t *testing.T) {
	t.Parallel()
	p := serveAsking(t)
	p.fake.running[defaultName].files["/a b/ü"] = "text\x1b[2J"
	for _, version := range []string{handshake, stateless} {
		c := overPipes(t, p.server, version, nil)
		list, err := c.ListResources(t.Context(), nil)
		if err != nil || len(list.Resources) != 4 {
			t.Fatalf("%s: %+v, %v", version, list, err)
		}
		templates, err := c.ListResourceTemplates(t.Context(), nil)
		if err != nil || len(templates.ResourceTemplates) != 3 {
			t.Fatalf("%s: %+v, %v", version, templates, err)
		}
		for uri, want := range map[string]string{
			"msb://runtime": `"approve":"client"`, "msb://sandboxes": `"name":"default","running":`, "msb://policy": "[egress]\ndefault = \"deny\"", "msb://denials": "nothing was denied",
			"msb://sandboxes/default/policy": "in force in default", "msb://sandboxes/default/denials": "nothing was denied",
			"msb://sandboxes/default/files/a%20b/%C3%BC": "text\\x1b[2J", "msb://sandboxes/default/files/none": "error: ",
			"msb://sandboxes/other/policy": "no such sandbox", "msb://sandboxes/OTHER/policy": "there is no resource", "msb://sandboxes/default/files/": "there is no resource",
			"msb://nosuch": "there is no resource", "file:///etc/passwd": "there is no resource", "msb://sandboxes/default/files/%zz": "there is no resource",
			"msb://sandboxes/../policy": "there is no resource", "msb://sandboxes/default": "there is no resource", "msb://" + strings.Repeat("x", maxURI): "there is no resource",
			"msb://sandboxes/default/files/..%2f..%2fetc/passwd": "error: ", "": "error: ",
		} {
			if got := reads(t, c, uri); !strings.Contains(got, want) || strings.Contains(got, "\x1b") {
				t.Errorf("%s, %.100s: %s", version, uri, got)
			}
		}
	}
}

// TestI8_ResourcesHoldNoValue: neither of secrets nor where they come from, nor what else the file takes of this machine.
func TestI8_ResourcesHoldNoValue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const value = "value-of-the-token-1234567890"
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, func(o *Options) {
		*o = trusted(t, o.Home, dir, `
[hosts]
"registry.internal" = "127.0.0.1:5000"
[tls]
via = "http://192.0.2.1:3128"
[[egress.allow]]
hosts = ["api.example"]
[secrets.API_TOKEN]
from = "file:token"
hosts = ["api.example"]
in = ["header:Authorization"]
`)
	})
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	for _, uri := range []string{"msb://runtime", "msb://sandboxes", "msb://policy", "msb://denials", "msb://sandboxes/default/policy", "msb://sandboxes/default/denials"} {
		text := reads(t, p.client, uri)
		for _, secret := range []string{value, dir, "from =", "127.0.0.1:5000", "192.0.2.1"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds %q: %s", uri, secret, text)
			}
		}
		if strings.HasSuffix(uri, "policy") && (!strings.Contains(text, "API_TOKEN") || !strings.Contains(text, `"api.example"`)) {
			t.Errorf("%s: %s", uri, text)
		}
	}
}

// TestSubscribersLearnOfChanges, in both eras, of what changed alone.
func TestSubscribersLearnOfChanges(t *testing.T) {
	t.Parallel()
	p := serveAsking(t)
	for _, version := range []string{handshake, stateless} {
		updated := make(chan string, 100)
		c := overPipes(t, p.server, version, &sdk.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI }})
		w := p.watchers[len(p.watchers)-1]
		w.every = time.Millisecond
		uris := []string{"msb://sandboxes", "msb://sandboxes/default/policy", "msb://denials"}
		for _, uri := range uris {
			if err := c.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}); err != nil {
				t.Fatalf("%s: %v", version, err)
			}
		}
		awaitSubscriptions(t, w, len(uris)) // in the later era the client doesn't
		next := func(want string) {
			t.Helper()
			select {
			case uri := <-updated:
				if uri != want {
					t.Errorf("%s: %s changed, want %s", version, uri, want)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: nothing of %s", version, want)
			}
		}
		r, err := p.opts.Home.Requests().Ask(t.Context(), defaultName, version+".example", 443, nil, "")
		if err == nil {
			err = p.opts.Home.Requests().Answer(t.Context(), defaultName, sandbox.RequestAnswer{ID: r.ID, Approve: true, Lifetime: "hour", By: "alice"})
		}
		if err != nil {
			t.Fatal(err)
		}
		next("msb://sandboxes/default/policy") // its log grew, of no denial
		p.says(t, false, "sandbox_create", m{"name": "b" + version})
		next("msb://sandboxes")
		p.denies(t)
		next("msb://denials")
		for _, uri := range uris {
			if err := c.Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: uri}); err != nil {
				t.Error(err)
			}
		}
	}
}

// awaitSubscriptions waits until n resources have subscribers.
func awaitSubscriptions(t *testing.T, w *watcher, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		there := len(w.byURI)
		w.mu.Unlock()
		if there == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d resources have subscribers, want %d", there, n)
		}
	}
}

// denies writes a denial into the default sandbox's log.
func (p *playground) denies(t *testing.T) {
	t.Helper()
	st, err := p.opts.Home.Inspect(defaultName)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(st.Audit, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = fmt.Fprintf(f, `{"time":%q,"sandbox":"default","kind":"flow.open","action":"deny","host":"evil%d.example","port":443,"proto":"tcp","reason":"no_rule"}`+"\n", time.Now().Format(time.RFC3339), time.Now().UnixNano())
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestI11_SubscriptionsAreBounded for a session, for all sessions, and end with theirs.
func TestI11_SubscriptionsAreBounded(t *testing.T) {
	t.Parallel()
	p := serveAsking(t)
	w := newWatcher(p.server, "test")
	w.protocol = p.protocol("test")
	w.looking = true // nobody looks
	subscribe := func(s *sdk.ServerSession, uri string) error {
		return w.subscribe(t.Context(), &sdk.SubscribeRequest{Session: s, Params: &sdk.SubscribeParams{URI: uri}})
	}
	session := func() *sdk.ServerSession {
		a, _ := sdk.NewInMemoryTransports()
		s, err := w.protocol.Connect(t.Context(), a, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	first := session()
	for uri, want := range map[string]string{"msb://nosuch": "there is no resource", "msb://sandboxes/default/files/a": "can't be subscribed", "msb://sandboxes/other/policy": "no such sandbox"} {
		if err := subscribe(first, uri); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", uri, err)
		}
	}
	for i := range maxSubscriptions {
		if err := subscribe(first, []string{"msb://policy", "msb://runtime"}[i%2]); err != nil {
			t.Fatal(err)
		}
	}
	if err := subscribe(first, "msb://sandboxes"); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("one too many of a session: %v", err)
	}
	if err := w.unsubscribe(t.Context(), &sdk.UnsubscribeRequest{Session: first, Params: &sdk.UnsubscribeParams{URI: "msb://runtime"}}); err != nil {
		t.Error(err)
	}
	if err := subscribe(first, "msb://sandboxes"); err != nil {
		t.Errorf("behind an end: %v", err)
	}
	var last *sdk.ServerSession
	for range maxWatched/maxSubscriptions - 1 {
		last = session()
		for range maxSubscriptions {
			if err := subscribe(last, "msb://policy"); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := session()
	if err := subscribe(other, "msb://policy"); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("one too many of all: %v", err)
	}
	_ = last.Close()
	if err := subscribe(other, "msb://policy"); err != nil {
		t.Errorf("behind the end of a session: %v", err)
	}
}

// TestI11_ListensTakeNoRequests: those that stay open are bounded by themselves, and end with their clients.
func TestI11_ListensTakeNoRequests(t *testing.T) {
	t.Parallel()
	srv, h := overHTTP(t, serve(t, nil), func(h *httpServer) { h.requests, h.listens = make(chan struct{}, 1), make(chan struct{}, 1) })
	const listen = `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["msb://sandboxes"]},` + metaNow + `}}`
	head := map[string]string{"Mcp-Protocol-Version": stateless, "Mcp-Method": "subscriptions/listen"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+HTTPPath, strings.NewReader(listen))
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range head {
		r.Header.Set(key, value)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer "+testToken)
	open, err := http.DefaultClient.Do(r)
	if err != nil || open.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", open, err)
	}
	defer open.Body.Close()
	ack := make([]byte, 1)
	if _, err := open.Body.Read(ack); err != nil { // it is open
		t.Fatal(err)
	}
	if status, _, text := post(t, srv.URL+HTTPPath, listen, head); status != http.StatusServiceUnavailable || !strings.Contains(text, "busy") {
		t.Errorf("a second: %d %s", status, text)
	}
	if status, _, text := post(t, srv.URL+HTTPPath, initialize, nil); status != http.StatusOK {
		t.Errorf("another request: %d %s", status, text)
	}
	cancel()
	h.listens <- struct{}{} // its place is free
}
