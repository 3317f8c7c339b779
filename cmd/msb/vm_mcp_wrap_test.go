//go:build vmtest

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// imageOfNode is a directory with Node.js and the libraries that it is linked against.
func imageOfNode(t *testing.T) string {
	t.Helper()
	node, dir := npmFile(t, nodeJS), t.TempDir()
	libraries, err := exec.CommandContext(t.Context(), "ldd", node).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{node: "/usr/bin/node"}
	for _, path := range regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(string(libraries), -1) {
		files[path[1]] = path[1]
	}
	for from, to := range files {
		to = filepath.Join(dir, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "cp", "-L", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return "dir:" + dir
}

// TestVMOtherServersRunInside has two servers from npm, one of which sends a key: their entries of msb mcp wrap are started as
// a client starts them.
func TestVMOtherServersRunInside(t *testing.T) {
	image, modules := imageOfNode(t), npmFile(t, "")
	dir, env := otherHome(t)
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	key := write(t, "key", "BSA-the-real-value-of-the-key-5150")
	policy := write(t, "policy.toml", `version = 1
[[egress.allow]]
hosts = ["api.search.brave.com"]
protocol = "https"
[hosts]
"api.search.brave.com" = "builtin:echo"
[secrets.BRAVE_API_KEY]
from = "file:`+key+`"
hosts = ["api.search.brave.com"]
in = ["header:X-Subscription-Token"]
`)
	finish(t, command(t, env, "policy", "trust", policy)).says(t, 0)
	wrapped := func(name, program string, flags ...string) *sdk.ClientSession {
		args := append([]string{"mcp", "wrap", "--image", image, "--vm", "qemu", "--memory", "1G", "-v", modules + ":/srv/node_modules"}, flags...)
		printed := finish(t, command(t, env, append(args, name, "--", "node", "/srv/node_modules/@modelcontextprotocol/"+program)...))
		var file struct{ MCPServers map[string]wrappedServer }
		if err := json.Unmarshal([]byte(printed.out), &file); err != nil || printed.code != 0 {
			t.Fatalf("%v: %+v", err, printed)
		}
		entry := file.MCPServers[name]
		cmd := command(t, env, entry.Args...)
		for variable, value := range entry.Env {
			cmd.Env = append(cmd.Env, variable+"="+value)
		}
		begun := time.Now()
		session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s answers after %s", name, time.Since(begun).Round(time.Millisecond))
		return session
	}
	call := func(c *sdk.ClientSession, tool string, args map[string]any) string {
		r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
		if err != nil {
			t.Fatal(err)
		}
		return r.Content[0].(*sdk.TextContent).Text
	}
	everything := wrapped("everything", "server-everything/dist/index.js", "-e", "VISIBLE=yes")
	if got := call(everything, "echo", map[string]any{"message": "from inside"}); got != "Echo: from inside" {
		t.Errorf("%q", got)
	}
	if got := call(everything, "get-env", map[string]any{}); !strings.Contains(got, `"VISIBLE": "yes"`) || strings.Contains(got, "MSB_HOME") {
		t.Errorf("its variables: %q", got)
	}
	_ = everything.Close() // it goes on behind the end of its input, here as outside, and is terminated
	brave := wrapped("brave", "server-brave-search/dist/index.js", "--policy", policy, "--audit", audit)
	call(brave, "brave_web_search", map[string]any{"query": "anything"})
	if err := brave.Close(); err != nil {
		t.Error(err)
	}
	lines, err := os.ReadFile(audit)
	if err != nil || !strings.Contains(string(lines), "BRAVE_API_KEY") || strings.Contains(string(lines), "the-real-value") {
		t.Errorf("%v: the audit log has\n%s", err, lines)
	}
	nothingLeft(t, dir)
}
