//go:build vmtest

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/sandbox"
)

// listClient is a client of msb mcp with another server's list, which notes what it has called.
type listClient struct {
	t       *testing.T
	session *sdk.ClientSession
	called  map[string]bool
}

func (c *listClient) says(failed bool, tool string, args map[string]any, words ...string) string {
	c.t.Helper()
	c.called[tool] = true
	r, err := c.session.CallTool(c.t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		c.t.Fatalf("%s: %v", tool, err)
	}
	text := r.Content[0].(*sdk.TextContent).Text
	if r.IsError != failed {
		c.t.Errorf("%s %v: error %v: %s", tool, args, r.IsError, text)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			c.t.Errorf("%s %v: %q is not in %s", tool, args, w, text)
		}
	}
	return text
}

// TestI15_VMClientsCallEveryListedTool has a client of each other server call each tool of its list, on one sandbox that
// runs on while servers come and go. Its history and its audit log go on.
func TestI15_VMClientsCallEveryListedTool(t *testing.T) {
	type m = map[string]any
	shared := t.TempDir()
	if err := os.WriteFile(filepath.Join(shared, "from-host"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "home")
	home := []string{sandbox.EnvHome + "=" + state}
	floor := write(t, "floor.toml", "version = 1\n[[ingress.allow]]\nname = \"me\"\ncidrs = [\"127.0.0.0/8\"]\n[agent]\ntools = [\"microsandbox\", \"microsandbox-http\", \"bird\"]\ndisk = \"1G\"\ndirectories = [\""+shared+":/shared:rw\"]\n[agent.children]\ncount = 1\n")
	if r := finish(t, command(t, home, "policy", "trust", floor)); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	defer func() { _ = command(t, home, "rm", "--force", "web", "copy", "two").Run() }()
	called := map[string]map[string]bool{}
	server := func(list string) *listClient {
		t.Helper()
		cmd := command(t, home, "mcp", "--vm", "qemu", "--policy", floor, "--max-disk", "1G", "--tools", list)
		session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		if called[list] == nil {
			called[list] = map[string]bool{}
		}
		return &listClient{t, session, called[list]}
	}

	ms := server("microsandbox")
	ms.says(false, "check_installed", nil, `"installed":true`)
	ms.says(false, "volume_create", m{"name": "data", "sizeMib": 64}, "data")
	ms.says(false, "volume_list", nil, `"name":"data"`)
	ms.says(false, "volume_remove", m{"name": "data"}, "removed")
	ms.says(false, "sandbox_create", m{"name": "web", "image": "builtin", "cpus": 1, "patches": []m{{"type": "text", "path": "/srv/f", "content": "patched"}}}, "web")
	ms.says(false, "sandbox_list", nil, `"name":"web"`)
	ms.says(false, "sandbox_inspect", m{"name": "web"}, `"running":true`)
	ms.says(false, "sandbox_exec", m{"name": "web", "command": "cat", "args": []string{"/srv/f"}}, "patched")
	ms.says(true, "sandbox_shell", m{"name": "web", "command": "echo out; exit 3"}, "exit code 3", "out")
	ms.says(false, "sandbox_fs_write", m{"name": "web", "path": "/d/f", "content": "text"})
	ms.says(false, "sandbox_fs_read", m{"name": "web", "path": "/d/f"}, "text")
	ms.says(false, "sandbox_fs_list", m{"name": "web", "path": "/d"}, "1 entries")
	ms.says(false, "sandbox_fs_mkdir", m{"name": "web", "path": "/d/e"})
	ms.says(false, "sandbox_fs_stat", m{"name": "web", "path": "/d/f"}, "4 bytes")
	ms.says(false, "sandbox_fs_remove", m{"name": "web", "path": "/d"})
	ms.says(false, "sandbox_metrics", m{"name": "web"}, `"memoryLimitBytes"`)
	ms.says(false, "sandbox_run", m{"image": "builtin", "command": "uname"}, "Linux")
	_ = ms.session.Close()

	bird := server("bird")
	bird.says(false, "exec", m{"command": "cat /srv/f; echo birds >/workspace/f", "sandbox": "web"}, "patched")
	bird.says(true, "python", m{"code": "1", "sandbox": "web"}, "python")
	bird.says(false, "write_file", m{"path": "/workspace/a", "content": "written", "sandbox": "web"})
	bird.says(false, "read_file", m{"path": "/workspace/a", "sandbox": "web"}, "written")
	bird.says(false, "batch_write", m{"files": `{"/workspace/b":"b"}`, "sandbox": "web"})
	bird.says(true, "install", m{"packages": "jq", "sandbox": "web"})
	bird.says(false, "env", m{"action": "set", "key": "A", "value": "b", "sandbox": "web"})
	bird.says(false, "bg", m{"command": "echo $A; exec sleep 1000", "name": "beat", "sandbox": "web"})
	bird.says(false, "logs", m{"name": "beat", "sandbox": "web"}, "job beat")
	bird.says(false, "kill", m{"name": "beat", "sandbox": "web"}, "ended")
	bird.says(false, "status", nil, `"name":"web"`)
	bird.says(false, "list_all", nil, `"name":"web"`)
	bird.says(false, "health", nil, `"answers":true`)
	bird.says(false, "stats", m{"sandbox": "web"}, "memory")
	bird.says(false, "images", nil, "builtin")
	bird.says(true, "build_image", m{"name": "x", "containerfile": "FROM x"}, "image")
	bird.says(false, "upload", m{"local_path": filepath.Join(shared, "from-host"), "sandbox": "web"})
	bird.says(false, "download", m{"sandbox_path": "/workspace/a", "local_path": shared, "sandbox": "web"})
	if b, err := os.ReadFile(filepath.Join(shared, "a")); err != nil || string(b) != "written" {
		t.Errorf("%q, %v", b, err)
	}
	bird.says(true, "git_clone", m{"repo": "https://git.example/a.git", "sandbox": "web"}, "git")
	bird.says(true, "git_clone", m{"repo": "https://git.example/a.git", "token": "x", "sandbox": "web"}, "secret")
	id, _, _ := strings.Cut(bird.says(false, "sync_start", m{"local_dir": shared, "sandbox_dir": "/copy", "sandbox": "web"}, "copies"), " ")
	bird.says(false, "sync_stop", m{"job_id": id}, "ended")
	bird.says(false, "snapshot", m{"snapshot_name": "before", "sandbox": "web"}, "before")
	bird.says(false, "list_snapshots", nil, `"before"`)
	bird.says(false, "restore", m{"snapshot_name": "before", "sandbox": "copy"})
	bird.says(false, "delete_snapshot", m{"snapshot_name": "before"})
	bird.says(false, "clone", m{"source": "web", "target": "two"}, "two")
	bird.says(false, "reset", m{"sandbox": "two", "wipe_workspace": true})
	bird.says(false, "destroy", m{"sandbox": "two"})
	var port struct {
		Port     int `json:"port"`
		HostPort int `json:"host_port"`
	}
	text := bird.says(false, "expose", m{"port": 8000, "sandbox": "web"}, "127.0.0.1:")
	_, after, _ := strings.Cut(text, "127.0.0.1:")
	digits := after[:len(after)-len(strings.TrimLeft(after, "0123456789"))]
	_ = json.Unmarshal([]byte(digits), &port.HostPort)
	bird.says(false, "network_info", nil, "8000")
	bird.says(false, "unexpose", m{"port": port.HostPort})
	bird.says(false, "spawn", m{"parent": "web", "name": "child"}, "child")
	bird.says(false, "children", m{"parent": "web"}, `"name":"child"`)
	bird.says(false, "destroy_child", m{"name": "child"})
	bird.says(false, "history", m{"sandbox": "web", "limit": 100}, `"tool":"sandbox_create"`, `"tool":"exec"`) // the other server's too
	_ = bird.session.Close()

	old := server("microsandbox-http")
	box := func(more m) m {
		all := m{"sandbox": "web", "namespace": "default"}
		for k, v := range more {
			all[k] = v
		}
		return all
	}
	old.says(false, "sandbox_start", box(nil), "web")
	old.says(false, "sandbox_run_command", box(m{"command": "cat", "args": []string{"/workspace/f"}}), "birds")
	old.says(true, "sandbox_run_code", box(m{"code": "1", "language": "python"}), "python")
	old.says(false, "sandbox_get_metrics", box(nil), `"name":"web"`, `"running":true`)
	again := server("microsandbox")
	again.says(false, "sandbox_stop", m{"name": "web"}, "stopped")
	again.says(false, "sandbox_remove", m{"name": "copy"}, "removed")
	log, err := os.ReadFile(filepath.Join(state, "sandboxes", "web", "audit.jsonl"))
	if n := strings.Count(string(log), `"exec.start"`); err != nil || n < 6 || strings.Count(string(log), `"sandbox.start"`) != 1 {
		t.Errorf("the audit log has %d commands of three servers in one run, %v", n, err)
	}
	old.says(false, "sandbox_stop", box(nil), "removed")

	for list, c := range map[string]*listClient{"microsandbox": again, "bird": server("bird"), "microsandbox-http": old} {
		all, err := c.session.ListTools(t.Context(), nil)
		if err != nil || len(all.Tools) == 0 {
			t.Fatal(list, err)
		}
		for _, tool := range all.Tools {
			if !called[list][tool.Name] {
				t.Errorf("%s of %s was not called", tool.Name, list)
			}
		}
	}
}
