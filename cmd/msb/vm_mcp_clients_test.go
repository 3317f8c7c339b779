//go:build vmtest

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestI15_VMInspectorCallsEveryTool of every toolset, each by a server of its own, in one sandbox that stays.
func TestI15_VMInspectorCallsEveryTool(t *testing.T) {
	shared := t.TempDir()
	if err := os.WriteFile(filepath.Join(shared, "from-host"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := newMCPHost(t, "--tools=all --vm=qemu --max-disk=1G -v="+shared+":/shared:rw")
	env := []string{sandbox.EnvHome + "=" + h.state}
	defer func() { _ = command(t, env, "rm", "--force", "default", "two").Run() }()
	type m = map[string]any
	called := map[string]bool{}
	calls := func(failed bool, tool string, args m, words ...string) {
		t.Helper()
		called[tool] = true
		input, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		var got mcpResult
		h.inspect(t, &got, "--method", "tools/call", "--tool-name", tool, "--tool-args-json", string(input))
		got.check(t, tool, failed, words...)
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
