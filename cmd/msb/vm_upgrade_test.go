//go:build vmtest

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestI13_VMUpgradesUnderRunningSandboxes renames another version of msb over the one that runs an MCP server and a sandbox:
// both go on, the sandbox's crashed guest is started again, and the new version has its history and its audit log.
func TestI13_VMUpgradesUnderRunningSandboxes(t *testing.T) {
	dir, env := otherHome(t)
	installed := filepath.Join(t.TempDir(), "msb")
	for file, version := range map[string]string{installed: "1.0.0-older", installed + ".new": "1.0.1-newer"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version, "-o", file, ".")
		if r := finish(t, build); r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	command := func(args ...string) *exec.Cmd {
		cmd := command(t, env, args...)
		cmd.Path, cmd.Args[0] = installed, installed
		return cmd
	}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(args...)) }
	defer func() { _ = command("rm", "--force", "default", "web").Run() }()
	floor := write(t, "floor.toml", "version = 1\n[agent]\ndisk = \"1G\"\ntools = [\"all\"]\n")
	serve := func() func(tool string, args map[string]any, words ...string) {
		t.Helper()
		cmd := command("mcp", "--vm", "qemu", "--tools", "all", "--policy", floor)
		client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return func(tool string, args map[string]any, words ...string) {
			t.Helper()
			r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
			if err != nil {
				t.Fatalf("%s: %v", tool, err)
			}
			text := r.Content[0].(*sdk.TextContent).Text
			if r.IsError {
				t.Errorf("%s %v: %s", tool, args, text)
			}
			for _, w := range words {
				if !strings.Contains(text, w) {
					t.Errorf("%s %v: %q is not in %s", tool, args, w, text)
				}
			}
		}
	}
	type m = map[string]any
	program := func(name string) string {
		t.Helper()
		var run struct{ VMM, Supervisor struct{ PID int } }
		b, err := os.ReadFile(filepath.Join(dir, "sandboxes", name, "run.json"))
		if err = errors.Join(err, json.Unmarshal(b, &run)); err != nil {
			t.Fatal(err)
		}
		path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", run.Supervisor.PID))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}

	msb("--version").want(t, 0, "msb 1.0.0-older\n")
	older := serve()
	older("sandbox_exec", m{"command": "echo kept > /kept && sync"}, "exit code 0")
	msb("run", "--vm", "qemu", "-q", "--no-net", "--disk", "1G", "--name", "web", "-d", "--restart", "always", "--", "sh", "-c", "echo up; exec sleep 1000").want(t, 0, "web\n")

	if err := os.Rename(installed+".new", installed); err != nil {
		t.Fatal(err)
	}
	msb("--version").want(t, 0, "msb 1.0.1-newer\n")
	older("sandbox_exec", m{"command": "cat /kept"}, "kept")
	older("sandbox_stop", m{})
	older("sandbox_exec", m{"command": "cat /kept # by the older server"}, "kept")
	if path := program("default"); path != installed+" (deleted)" {
		t.Errorf("a server of the older version started %s as supervisor", path)
	}

	msb("exec", "web", "--", "sh", "-c", "echo kept > /kept; sync").want(t, 0, "")
	_ = msb("exec", "web", "--", "reboot", "-f") // which ends under it
	eventually(t, "the command runs again", func() bool { return msb("logs", "web").out == "up\nup\n" })
	if path := program("web"); path != installed+" (deleted)" {
		t.Errorf("the guest was started again by %s", path)
	}
	msb("exec", "web", "--", "cat", "/kept").want(t, 0, "kept\n")
	msb("stop", "web").want(t, 0, "web\n")
	msb("start", "-q", "web").want(t, 0, "web\n")
	if path := program("web"); path != installed {
		t.Errorf("the new version started it as %s", path)
	}
	msb("exec", "web", "--", "cat", "/kept").want(t, 0, "kept\n")
	for event, lines := range map[string]int{"start": 3, "restart": 1, "stop": 2} {
		if got := msb("events", "--filter", "event="+event, "web").out; strings.Count(got, "\n") != lines {
			t.Errorf("%d lines of %s wanted: %s", lines, event, got)
		}
	}

	newer := serve()
	newer("sandbox_exec", m{"command": "cat /kept"}, "kept")
	newer("sandbox_history", m{}, "echo kept", "by the older server")
}
