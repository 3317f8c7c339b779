package mcp

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/sandbox"
)

// elsewhere are ways to write an address of this machine, or one of its files.
func elsewhere(registry, canary string) []string {
	_, port, _ := net.SplitHostPort(registry)
	return []string{
		"http://" + registry + "/x", "https://" + registry, "//" + registry + "/x", registry, registry + "/x:1", "http://a@" + registry, "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://2130706433:" + port,
		"http://0x7f.1:" + port, "http://0:" + port, "tcp://" + registry, "unix://" + canary, "ftp://" + registry, "docker://" + registry + "/x", "git+http://" + registry + "/a.git", "file://" + canary, "file://localhost" + canary,
		"file:///proc/self/root" + canary, canary, "../../../../../../../.." + canary, "..%2f..%2f..%2f..%2f..%2f" + canary, "dir:" + filepath.Dir(canary), "http://169.254.169.254/latest/meta-data", "gopher://" + registry + "/_x",
	}
}

// TestI15_NothingOverHTTPLeadsElsewhere: no argument of a tool, of msb's and of each other list's, and no URI of a resource
// has the server dial an address or read a file of this machine. The twins do both.
func TestI15_NothingOverHTTPLeadsElsewhere(t *testing.T) {
	t.Parallel()
	const secret = "what-only-this-machine-knows"
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	var dialled atomic.Int64
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			_ = c.Close()
		}
	}()
	defer func() { _ = listener.Close() }()
	values := elsewhere(listener.Addr().String(), canary)
	for _, list := range []string{AllTools, listMicrosandbox, listMicrosandboxHTTP, listBird} {
		p := serve(t, func(o *Options) { o.Tools, o.Sandboxes = []string{list}, 1000 })
		srv, _ := overHTTP(t, p, nil)
		c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
			&sdk.StreamableClientTransport{Endpoint: srv.URL + HTTPPath, HTTPClient: &http.Client{Transport: withToken(testToken)}, DisableStandaloneSSE: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		tools, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		places := 0
		for _, tool := range tools.Tools {
			text, err := json.Marshal(tool.InputSchema)
			var schema map[string]any
			if err = errors.Join(err, json.Unmarshal(text, &schema)); err != nil {
				t.Fatal(err)
			}
			for _, place := range leaves(schema, nil) {
				if place.kind != "string" {
					continue
				}
				for variant := range variants(schema) {
					places++
					for n := range 6 { // in turns, so that each comes to some place of each list
						value := values[(6*places+n)%len(values)]
						args := sample("", schema, variant, append([]string{}, place.way...), value)
						r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool.Name, Arguments: args})
						if err != nil {
							t.Fatalf("%s %v %q: %v", tool.Name, place.way, value, err)
						}
						if text := r.Content[0].(*sdk.TextContent).Text; strings.Contains(text, secret) {
							t.Errorf("%s %v %q: %.200s", tool.Name, place.way, value, text)
						}
					}
				}
			}
		}
		if places < 5 {
			t.Errorf("%s: %d places", list, places)
		}
		if list != AllTools {
			continue // which have no resources
		}
		if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: "made2", Label: p.label}); err != nil {
			t.Fatal(err)
		}
		for _, value := range values {
			for _, uri := range []string{value, "msb:" + value, "msb://" + value, resourceSandboxes + "/" + value + "/policy", resourceSandboxes + "/made2/" + value, resourceSandboxes + "/made2/files/" + value, resourcePolicy + "?" + value, resourcePolicy + "#" + value, "http://" + value} {
				r, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
				file := strings.HasPrefix(uri, resourceSandboxes+"/made2/files/") // of the guest, whose files are not this machine's
				if err == nil && (!file || strings.Contains(r.Contents[0].Text, secret)) {
					t.Errorf("%q: %+v", uri, r.Contents[0])
				}
				// The client doesn't wait for the answer (TestI11_SubscriptionsAreBounded has the refusals).
				_, _ = c.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}), c.Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: uri})
			}
		}
	}
	if n := dialled.Load(); n > 0 {
		t.Errorf("an address of this machine was dialled %d times", n)
	}
	if r, err := http.Get(values[0]); err == nil { // the twin
		_ = r.Body.Close()
	}
	if text, err := os.ReadFile(canary); err != nil || string(text) != secret || dialled.Load() == 0 {
		t.Errorf("it could not be dialled or read anyway: the test shows nothing")
	}
}

// TestI15_TwoTokensAreRefused: a request with two is refused, whichever is right: another reader of it may take the other.
func TestI15_TwoTokensAreRefused(t *testing.T) {
	t.Parallel()
	h := serve(t, nil).overHTTP("test", HTTPOptions{Token: testToken})
	for want, all := range map[bool][]string{true: {"Bearer " + testToken}, false: {"Bearer " + testToken, "Bearer x"}} {
		r := &http.Request{Header: http.Header{"Authorization": all}}
		if got := h.knows(r); got != want {
			t.Errorf("%q: %v", all, got)
		}
	}
}
