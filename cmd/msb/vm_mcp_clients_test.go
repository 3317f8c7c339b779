//go:build vmtest

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestI15_VMInspectorCallsEveryTool of every toolset, each by a server of its own, in one sandbox that stays.
func TestI15_VMInspectorCallsEveryTool(t *testing.T) {
	shared := t.TempDir()
	if err := os.WriteFile(filepath.Join(shared, "from-host"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	policy := write(t, "policy.toml", "version = 1\n[[ingress.allow]]\nname = \"me\"\ncidrs = [\"127.0.0.0/8\"]\n[agent]\ntools = [\"all\"]\ndisk = \"1G\"\ndirectories = [\""+shared+":/shared:rw\"]\n[agent.children]\ncount = 1\n")
	h := newMCPHost(t, "--tools=all --vm=qemu --max-disk=1G --policy="+policy+" -v="+shared+":/shared:rw")
	env := []string{sandbox.EnvHome + "=" + h.state}
	if out, err := command(t, env, "policy", "trust", policy).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer func() { _ = command(t, env, "rm", "--force", "default", "two", "child").Run() }()
	type m = map[string]any
	called := map[string]bool{}
	calls := func(failed bool, tool string, args m, words ...string) (text string) {
		t.Helper()
		called[tool] = true
		input, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		var got mcpResult
		h.inspect(t, &got, "--method", "tools/call", "--tool-name", tool, "--tool-args-json", string(input))
		got.check(t, tool, failed, words...)
		for _, c := range got.Content {
			text += c.Text
		}
		return text
	}
	calls(false, "sandbox_create", m{"name": "two", "cpus": 1})
	calls(false, "sandbox_remove", m{"sandbox": "two"}, "two")
	calls(false, "image_list", m{}, "cached")
	calls(false, "fs_write", m{"files": []m{{"path": "/work/a.sh", "content": "echo one"}}}, "sandbox default")
	calls(false, "fs_append", m{"path": "/work/a.sh", "content": "; echo two"}, "18 bytes")
	calls(false, "fs_read", m{"path": "/work/a.sh"}, "echo one; echo two")
	calls(false, "fs_search", m{"path": "/work", "text": "two"}, "a.sh:1:")
	calls(false, "fs_stat", m{"path": "/work/a.sh"}, "18 bytes")
	calls(false, "fs_mkdir", m{"path": "/work/b/c"})
	calls(false, "fs_rename", m{"path": "/work/a.sh", "to": "/work/b/a.sh"})
	calls(false, "fs_list", m{"path": "/work/b"}, "2 entries")
	calls(false, "fs_upload", m{"from": filepath.Join(shared, "from-host"), "to": "/work/b"})
	calls(false, "fs_download", m{"from": "/work/b/a.sh", "to": shared})
	calls(false, "sandbox_exec", m{"argv": []string{"sh", "/work/b/a.sh"}}, "exit code 0", "one\ntwo")
	calls(false, "sandbox_run_code", m{"steps": []m{{"language": "sh", "code": "cat /work/b/from-host"}}}, "hello")
	calls(false, "fs_remove", m{"path": "/work/b", "recursive": true})
	calls(false, "check_installed", m{"programs": []string{"sh"}}, "sh: /bin/sh")
	calls(false, "job", m{"action": "start", "job": "beat", "command": "exec sleep 1000"}, "job beat started")
	calls(false, "sandbox_metrics", m{}, "memory_free_mb")
	calls(false, "sandbox_inspect", m{}, `"image_digest":"sha256:`, `"backend":"qemu"`)
	calls(false, "sandbox_health", m{}, `"answers":true`)
	calls(false, "network", m{"action": "denied"})
	calls(true, "sandbox_install", m{"packages": []string{"jq"}})
	calls(false, "sandbox_logs", m{}, "console")
	calls(false, "port_publish", m{"port": 8000}, "127.0.0.1:")
	calls(false, "port_list", m{}, `"port":8000`)
	calls(false, "port_remove", m{"port": 8000})
	calls(false, "volume_create", m{"name": "data", "size_mb": 64}, "data")
	calls(false, "volume_list", m{}, `"name":"data"`)
	calls(false, "volume_remove", m{"name": "data"}, "data")
	calls(false, "snapshot_create", m{"snapshot": "before"}, "before")
	calls(false, "snapshot_list", m{}, `"name":"before"`)
	calls(false, "sandbox_clone", m{"snapshot": "before", "to": "two"}, "two")
	calls(false, "sandbox_remove", m{"sandbox": "two"})
	calls(false, "snapshot_restore", m{"snapshot": "before", "sandbox": "default"})
	calls(false, "snapshot_remove", m{"snapshot": "before"})
	id, _, _ := strings.Cut(calls(false, "sync_start", m{"from": shared, "to": "/root/copy"}, "copies what is new"), " ")
	calls(false, "sync_stop", m{"sync": id}, "ended")
	calls(true, "git_clone", m{"repo": "https://git.example/a.git", "path": "/root"}, "git")
	calls(false, "child_spawn", m{"name": "child"}, "child child of sandbox default runs")
	calls(true, "child_spawn", m{"name": "second"}, "at most 1")
	calls(false, "child_list", m{}, `"name":"child"`)
	calls(true, "child_destroy", m{"name": "default"}, "no child")
	calls(false, "child_destroy", m{"name": "child"})
	calls(false, "sandbox_stop", m{}, "stopped")
	calls(false, "sandbox_env", m{"set": m{"A": "b"}}, `"A":"b"`)
	calls(false, "sandbox_start", m{}, "running")
	calls(false, "sandbox_reset", m{"sandbox": "default"})
	calls(false, "sandbox_history", m{})
	calls(false, "sandbox_list", m{}, `"name":"default"`)
	calls(false, "sandbox_run", m{"command": "uname"}, "Linux")

	var list struct{ Tools []struct{ Name string } }
	h.inspect(t, &list, "--method", "tools/list")
	for _, tool := range list.Tools {
		if !called[tool.Name] {
			t.Errorf("%s was not called", tool.Name)
		}
	}
	if len(list.Tools) == 0 {
		t.Error("no tool is listed")
	}
	if b, err := os.ReadFile(filepath.Join(shared, "a.sh")); err != nil || string(b) != "echo one; echo two" {
		t.Errorf("downloaded: %q, %v", b, err)
	}
	msb(t, env, "rm", "--force", "default").want(t, 0, "default\n")
	nothingLeft(t, h.state)
}
