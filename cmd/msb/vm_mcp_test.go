//go:build vmtest

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/sandbox"
)

// playRegistry serves one package, a program that says its version.
func playRegistry(t *testing.T) (address string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	const program = "#!/bin/sh\necho tool 1.2.3\n"
	err := w.WriteHeader(&tar.Header{Name: "tool", Mode: 0o755, Size: int64(len(program))})
	if err == nil {
		_, err = io.WriteString(w, program)
	}
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Host != "registry.example" || r.URL.Path != "/tool-1.2.3.tgz" {
			http.NotFound(rw, r)
			return
		}
		_, _ = rw.Write(b.Bytes())
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// TestI15_VMAnAgentsDay drives a real sandbox through msb mcp as a client starts it: write, test, install from a registry, be
// denied, ask why, leave a job, read hostile output, review, stop and remove.
func TestI15_VMAnAgentsDay(t *testing.T) {
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	shared := t.TempDir()
	floor := write(t, "floor.toml", "version = 1\n[[egress.allow]]\nhosts = [\"echo.msb.internal\"]\nprotocol = \"https\"\n[[egress.allow]]\nhosts = [\"registry.example\"]\nprotocol = \"http\"\nmethods = [\"GET\"]\n[hosts]\n\"echo.msb.internal\" = \"builtin:echo\"\n\"registry.example\" = \""+playRegistry(t)+"\"\n[agent]\ndisk = \"1G\"\ndirectories = [\""+shared+":/shared:rw\"]\napprove = \"client\"\nmay_request = [\"*.example\"]\n")
	if r := finish(t, command(t, home, "policy", "trust", floor)); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	defer func() { _ = command(t, home, "rm", "--force", "default").Run() }()
	cmd := command(t, home, "mcp", "--vm", "qemu", "--policy", floor, "--max-disk", "1G", "-v", shared+":/shared:rw")
	answer := sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": "allow for an hour", "why": "it builds"}}
	person := func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) { r := answer; return &r, nil }
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{ElicitationHandler: person}).Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	type m = map[string]any
	says := func(failed bool, tool string, args m, words ...string) {
		t.Helper()
		r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		text := r.Content[0].(*sdk.TextContent).Text
		if r.IsError != failed {
			t.Errorf("%s %v: error %v: %s", tool, args, r.IsError, text)
		}
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%s %v: %q is not in %s", tool, args, w, text)
			}
		}
	}
	says(false, "fs_write", m{"files": []m{{"path": "/work/test.sh", "content": "test \"$1\" = right || { echo wrong >&2; exit 3; }; echo passed", "executable": true}}}, "sandbox default")
	says(true, "sandbox_exec", m{"command": "sh test.sh left", "cwd": "/work"}, "exit code 3", "stderr", "wrong")
	says(false, "sandbox_exec", m{"argv": []string{"sh", "/work/test.sh", "right"}, "env": m{"A": "b"}}, "exit code 0", "passed")
	says(false, "sandbox_run_code", m{"steps": []m{{"language": "sh", "code": "echo kept > /note"}, {"language": "sh", "code": "cat /note"}}}, "step 2 of 2", "kept")
	says(true, "sandbox_run_code", m{"steps": []m{{"language": "python", "code": "print(1)"}}}, "not started", "check_installed")
	says(false, "check_installed", m{"programs": []string{"sh", "python3"}}, "sh: /bin/sh", "python3: not installed")
	says(false, "fs_list", m{"path": "/work"}, "1 entries", "test.sh")
	says(false, "sandbox_exec", m{"command": `mkdir /odd && touch "$(printf '/odd/\377')"`})
	says(false, "fs_list", m{"path": "/odd"}, "1 entries", `\xff`)
	says(false, "fs_read", m{"path": "/note"}, "kept")
	says(true, "fs_read", m{"path": "/none"}, "/none")
	says(true, "fs_read", m{"path": "/work"}, "/work is a directory: fs_list")
	says(true, "fs_list", m{"path": "/note"}, "/note is a file: fs_read")
	says(true, "job", m{"action": "start", "argv": []string{"nosuch"}}, "not started (exit code 127); check_installed")
	says(false, "fs_write", m{"files": []m{{"path": "/shared/x", "content": "made inside"}}})
	if b, err := os.ReadFile(filepath.Join(shared, "x")); err != nil || string(b) != "made inside" {
		t.Errorf("in the directory of the host: %q, %v", b, err)
	}

	says(false, "network", m{"action": "explain", "to": "registry.example:80"}, `"action":"inspect"`)
	says(false, "sandbox_exec", m{"command": "wget -qO- http://registry.example/tool-1.2.3.tgz | tar xz -C /usr/local/bin && tool"}, "exit code 0", "tool 1.2.3")
	says(true, "sandbox_exec", m{"command": "wget -qO- --post-data x http://registry.example/tool-1.2.3.tgz"}, "registry.example", "method")

	// The floor holds in the guest, and the refusal is explained.
	says(false, "sandbox_exec", m{"command": "nslookup evil.example; nc -w 5 10.0.0.1 80; true"}, "network policy:", "evil.example")
	says(false, "network", m{"action": "denied"}, "evil.example", "10.0.0.1")
	says(false, "network", m{"action": "explain", "to": "evil.example:443"}, `"action":"deny"`)
	says(false, "network", m{"action": "explain", "to": "echo.msb.internal:443"}, `"action":"inspect"`)
	says(false, "sandbox_exec", m{"command": "nslookup echo.msb.internal"}, "exit code 0")

	// More is asked for, and a person answers: in the client, or in a terminal where they leave it open.
	says(true, "network", m{"action": "request", "to": "asked.other", "why": "x"}, "may_request")
	says(false, "network", m{"action": "request", "to": "asked.example", "why": "to build"}, "for an hour", "it builds")
	says(false, "network", m{"action": "explain", "to": "asked.example:443"}, `"action":"inspect"`, "approved by")
	answer = sdk.ElicitResult{Action: "decline"}
	says(true, "network", m{"action": "request", "to": "evil.example", "why": "x"}, "denied")
	says(false, "network", m{"action": "explain", "to": "evil.example:443"}, `"action":"deny"`)
	answer = sdk.ElicitResult{Action: "cancel"}
	says(false, "network", m{"action": "request", "to": "later.example", "why": "to test"}, "msb requests approve")
	var waiting []struct{ ID string }
	if r := finish(t, command(t, home, "requests", "ls", "--json")); json.Unmarshal([]byte(r.out), &waiting) != nil || len(waiting) == 0 {
		t.Fatalf("%+v", r)
	}
	for i := range waiting { // no other is open
		_ = command(t, home, "requests", "approve", "--why", "it tests", waiting[i].ID).Run()
	}
	says(false, "network", m{"action": "explain", "to": "later.example:443"}, `"action":"inspect"`, "approved by")
	log, err := os.ReadFile(filepath.Join(strings.TrimPrefix(home[0], sandbox.EnvHome+"="), "sandboxes", "default", "audit.jsonl"))
	for _, w := range []string{"to build", `vouched by client \"test\" \"1\"`, "it builds", "it tests"} {
		if !strings.Contains(string(log), w) {
			t.Errorf("%v: %s is not in the audit log", err, w)
		}
	}

	says(false, "sandbox_exec", m{"command": `printf 'a\033[31mb\n'; head -c 3000000 /dev/zero | tr '\0' x`}, `a\x1b[31mb`, "bytes left out")
	for range 17 { // with the one above two more than stay
		says(false, "sandbox_exec", m{"command": `head -c 50000 /dev/zero | tr '\0' x`}, "in /tmp/msb-output/stdout-")
	}
	says(false, "fs_list", m{"path": "/tmp/msb-output"}, "16 entries")
	says(true, "sandbox_exec", m{"command": "sleep 1000", "timeout": 1}, "timeout")
	says(false, "job", m{"action": "start", "job": "beat", "command": "echo one; echo two; exec sleep 1000"}, "job beat started")
	says(false, "sandbox_exec", m{"command": "until ps | grep -q '[s]leep 1000'; do :; done"})
	for end := time.Now().Add(time.Minute); time.Now().Before(end); { // what it wrote is on its way to the host
		r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: "job", Arguments: m{"action": "logs", "job": "beat"}})
		if err != nil || strings.Contains(r.Content[0].(*sdk.TextContent).Text, "two") {
			break
		}
	}
	says(false, "job", m{"action": "logs", "job": "beat"}, "running", "one\ntwo", "next cursor 8")
	says(false, "job", m{"action": "logs", "job": "beat", "cursor": 4}, "two", "next cursor 8")
	says(false, "job", m{"action": "kill", "job": "beat", "force": true}, "signal 9")
	says(false, "job", m{"action": "wait", "job": "beat"}, "job beat: ", "exit code 137")

	// What the prompt of a review leads through.
	review, err := client.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "review_sandbox"})
	if err != nil || !strings.Contains(review.Messages[0].Content.(*sdk.TextContent).Text, "the sandbox default") {
		t.Errorf("the prompt: %+v, %v", review, err)
	}
	says(false, "sandbox_list", m{}, `"name":"default"`)
	says(false, "job", m{"action": "list"}, `"beat"`)
	says(false, "network", m{"action": "denied"}, "evil.example", "registry.example")

	says(false, "sandbox_stop", m{}, "default stopped")
	says(false, "sandbox_exec", m{"command": "cat /note /shared/x"}, "kept", "made inside") // started again, with its files
	says(false, "sandbox_stop", m{"remove": true}, "removed")
	says(false, "sandbox_list", m{}, `"sandboxes":[]`)
	says(false, "sandbox_run", m{"command": "nslookup evil.example; uname"}, "Linux", "evil.example")
	if err := client.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	nothingLeft(t, strings.TrimPrefix(home[0], sandbox.EnvHome+"="))
}
