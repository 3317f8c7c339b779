//go:build conformance

package mcp

import (
	"encoding/json"
	"io/fs"
	"maps"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// reference starts go-sdk's own server with the fixtures of the suite, and returns what passes requests on to it.
func reference(t *testing.T, program, flag string) *httputil.ReverseProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	cmd := exec.CommandContext(t.Context(), program, "-http", address, flag)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	p.FlushInterval = -1
	return p
}

// suite is what the suite found, by scenario: the ids of the checks that failed.
func suite(t *testing.T, server string, args ...string) (failed map[string][]string, scenarios int) {
	t.Helper()
	out := t.TempDir()
	said, _ := nodeIn(t, "testdata/conformance", append([]string{"node_modules/@modelcontextprotocol/conformance/dist/index.js", "server", "--url", server, "--output-dir", out}, args...)...)
	failed = map[string][]string{}
	err := filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "checks.json" {
			return err
		}
		scenarios++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		if err := json.Unmarshal(text, &checks); err != nil {
			return err
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "server-"), "-20") // and the day
		for _, c := range checks {
			if c.Status == "FAILURE" || c.Status == "WARNING" {
				failed[name] = append(failed[name], c.ID+": "+c.Status+": "+c.ErrorMessage)
			}
		}
		return nil
	})
	if err != nil || scenarios == 0 {
		t.Fatalf("%v, %d scenarios: %s", err, scenarios, said)
	}
	return failed, scenarios
}

// exception is what the suite finds and why that may be. A scenario ends in * where it stands for all of that beginning,
// and a check of "" is all of its checks.
type exception struct{ what, scenario, check, why string }

var exceptions = []exception{
	{"2025-11-25", "server-sse-polling", "sse-priming-event", "a warning: streams can't be resumed, since no events are kept of them; a client calls again"},
	{"2026-07-28", "tasks-*", "", "the extension of tasks: msb doesn't have it; a long call goes on under a name, and the tool job waits for it"},
	{"msb 2026-07-28", "server-stateless", "sep-2575-server-rejects-undeclared-capability", "needs a fixture that msb is without; the layer passes it with the fixture"},
	{"msb 2026-07-28", "server-stateless", "sep-2575-missing-capability-http-400", "needs a fixture that msb is without; the layer passes it with the fixture"},
	{"msb 2026-07-28", "server-stateless", "sep-2575-http-server-no-independent-requests-on-stream", "needs a fixture that msb is without; the layer passes it with the fixture"},
	{"msb 2026-07-28", "server-stateless", "sep-2575-server-no-log-without-loglevel", "needs a fixture that msb is without; the layer passes it with the fixture"},
}

// covers reports whether an exception is of a failure.
func (e *exception) covers(what, scenario, check string) bool {
	prefix, all := strings.CutSuffix(e.scenario, "*")
	return e.what == what && (e.scenario == scenario || all && strings.HasPrefix(scenario, prefix)) && (e.check == "" || strings.HasSuffix(check, e.check))
}

// TestConformanceOfTheHTTPLayer has our HTTP layer before go-sdk's reference server, which has the suite's fixtures: all that
// a revision requires.
func TestConformanceOfTheHTTPLayer(t *testing.T) {
	program := filepath.Join(t.TempDir(), "everything")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	old, now := reference(t, program, "-stateless=false"), reference(t, program, "-stateless=true")
	h := serve(t, nil).overHTTP("test", HTTPOptions{})
	h.old, h.now = old, now
	h.methods = append(slices.Clone(methods), "completion/complete", "logging/setLevel")
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	for revision, least := range map[string]int{"2025-11-25": 33, "2026-07-28": 50} {
		failed, n := suite(t, srv.URL+HTTPPath, "--requirements", revision)
		if n < least {
			t.Errorf("%s: %d scenarios, want %d", revision, n, least)
		}
		compare(t, revision, failed)
	}
}

// TestConformanceOfMSB runs the scenarios that need no fixtures against msb itself.
func TestConformanceOfMSB(t *testing.T) {
	srv := httptest.NewServer(serve(t, nil).overHTTP("test", HTTPOptions{}))
	t.Cleanup(srv.Close)
	for revision, scenarios := range map[string][]string{
		"2025-11-25": {"server-initialize", "server-session-lifecycle", "ping", "tools-list", "prompts-list", "resources-list", "dns-rebinding-protection"},
		"2026-07-28": {"server-stateless", "tools-list", "prompts-list", "resources-list", "sep-2164-resource-not-found", "caching", "http-header-validation", "dns-rebinding-protection"},
	} {
		found := map[string][]string{}
		for _, s := range scenarios {
			failed, _ := suite(t, srv.URL+HTTPPath, "--spec-version", revision, "--scenario", s)
			maps.Copy(found, failed)
		}
		compare(t, "msb "+revision, found)
	}
}

// compare wants the failures that the table explains, and no others.
func compare(t *testing.T, what string, failed map[string][]string) {
	t.Helper()
	seen := map[int]bool{}
	for scenario, checks := range failed {
		for _, c := range checks {
			id, _, _ := strings.Cut(c, ": ")
			i := slices.IndexFunc(exceptions, func(e exception) bool { return e.covers(what, scenario, id) })
			if i < 0 {
				t.Errorf("%s: %s: %s", what, scenario, c)
			}
			seen[i] = true
		}
	}
	for i, e := range exceptions {
		if e.what == what && !seen[i] {
			t.Errorf("%s: %s %s passes: take it out of the table", what, e.scenario, e.check)
		}
	}
}
