//go:build !vmtest

package sandbox_test

import (
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/mcp"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// TestI13_IdleSandboxesStartAgainOnUse makes two sandboxes through a server of MCP over HTTP, on real supervisors: the one
// that nobody uses is stopped, and the next call starts it again with its files, history and audit log. The twin has a job,
// and runs on.
func TestI13_IdleSandboxesStartAgainOnUse(t *testing.T) {
	t.Parallel()
	home, err := sandbox.OpenHome(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	floor, err := policies.Parse("floor.toml", []byte("version = 1\n[agent]\nmay_request = [\"*.example\"]\ntools = [\"all\"]\nidle_stop = \"2s\"\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- mcp.ServeHTTP(t.Context(), mcp.Options{Home: home, Floor: floor}, "test", l, mcp.HTTPOptions{}, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() { <-ended })
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: "http://" + l.Addr().String() + mcp.HTTPPath}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	type m = map[string]any
	says := func(tool string, args m, words ...string) {
		t.Helper()
		r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		text := r.Content[0].(*sdk.TextContent).Text
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%s %v: %q is not in %s", tool, args, w, text)
			}
		}
		if r.IsError {
			t.Errorf("%s %v: %s", tool, args, text)
		}
	}
	status := func(name string) *sandbox.Status {
		t.Helper()
		st, err := home.Inspect(name)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}

	says("sandbox_create", m{"name": "busy"})
	says("job", m{"action": "start", "sandbox": "busy", "argv": []string{"wait"}}, "started")
	says("sandbox_create", m{"name": "idle"})
	says("sandbox_exec", m{"sandbox": "idle", "argv": []string{"append", "kept"}}, "exit code 0")
	says("network", m{"action": "request", "sandbox": "idle", "to": "api.example", "why": "asked before it stopped"}, "waits for the operator")
	first := status("idle")
	if !first.Running || first.IdleStop != 2*time.Second {
		t.Fatalf("%+v", first)
	}
	for end := time.Now().Add(2 * time.Minute); status("idle").End == nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it runs on, and nobody uses it")
		}
	}
	if st := status("idle"); st.Running || st.End.Kind != sandbox.KindIdle {
		t.Errorf("it ended as %+v", st.End)
	}
	if st := status("busy"); !st.Running {
		t.Errorf("the twin: one with a job ended as %+v", st.End)
	}

	says("sandbox_exec", m{"sandbox": "idle", "argv": []string{"list"}}, "exit code 0", "kept")
	if st := status("idle"); !st.Running || st.Started.Equal(*first.Started) || !st.Created.Equal(first.Created) {
		t.Errorf("it was not started again: %+v", st)
	}
	says("sandbox_history", m{"sandbox": "idle"}, `"tool":"sandbox_create"`, `"what":"append kept"`, "api.example", `"what":"list"`)
	log, err := os.ReadFile(first.Audit)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, word := range []string{"asked before it stopped", `"idle`} { // in this order
		i := strings.Index(string(log)[at:], word)
		if i < 0 {
			t.Fatalf("%s is not in the audit log:\n%s", word, log[at:])
		}
		at += i
	}
	if next := status("idle").Audit; next != first.Audit {
		t.Errorf("its audit log is %s, and was %s", next, first.Audit)
	}
	for _, name := range []string{"idle", "busy"} {
		says("sandbox_stop", m{"sandbox": name, "remove": true}, "removed")
	}
}
