//go:build vmtest

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/sandbox"
)

// TestI13_VMIdleSandboxesStartAgainOnUse is TestI13_IdleSandboxesStartAgainOnUse with a real guest: what it wrote, the
// history and the audit log are there behind a stop for idleness.
func TestI13_VMIdleSandboxesStartAgainOnUse(t *testing.T) {
	dir, home := otherHome(t)
	_, url, log, end := startServer(t, command(t, home, "server", "start", "--dev", "--listen", "127.0.0.1:0", "--vm", "qemu", "--idle-stop", "2s", "--max-disk", "1G", "--tools", "all"))
	defer end()
	defer func() { _ = command(t, home, "rm", "--force", "default").Run() }()
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	defer func() { _ = client.Close() }()
	says := func(tool string, args map[string]any, words ...string) {
		t.Helper()
		r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		text := r.Content[0].(*sdk.TextContent).Text
		for _, w := range words {
			if r.IsError || !strings.Contains(text, w) {
				t.Errorf("%s %v: %q is not in %s", tool, args, w, text)
			}
		}
	}
	says("sandbox_exec", map[string]any{"command": "echo kept > /note; nslookup before.example; true"}, "exit code 0")
	state, err := sandbox.OpenHome(dir)
	if err != nil {
		t.Fatal(err)
	}
	var stopped *sandbox.Status
	eventually(t, "its end", func() bool {
		st, err := state.Inspect("default")
		stopped = st
		return err == nil && st.End != nil
	})
	if stopped.Running || stopped.End.Kind != sandbox.KindIdle {
		t.Errorf("it ended as %+v", stopped.End)
	}
	says("sandbox_exec", map[string]any{"command": "cat /note; nslookup after.example; true"}, "kept")
	says("sandbox_history", nil, "before.example", "cat /note")
	text, err := os.ReadFile(filepath.Join(stopped.Dir, "audit.jsonl"))
	before, after := strings.Index(string(text), "before.example"), strings.Index(string(text), "after.example")
	if err != nil || before < 0 || after < before {
		t.Errorf("%v: %s", err, text)
	}
}
