//go:build vmtest

package sandbox_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// TestI15_VMProgramsHaveChildren asks for children in a real guest by msb-ctl, as root and as another user, and floods the
// socket from there.
func TestI15_VMProgramsHaveChildren(t *testing.T) {
	h := namedHome(t)
	p, err := policies.Parse("t.toml", []byte("version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	budget := &sandbox.ChildBudget{Count: 1, Total: 2, Depth: 1, CPUs: 1, Memory: 256 << 20, Lifetime: time.Minute}
	sb := start(t, func(c *sandbox.Config) {
		c.Name, c.Disk, c.CPUs, c.Memory, c.Policy, c.Children, c.ReadOnly = "ctl", 1<<30, 1, 256<<20, p, budget, true
	})
	t.Cleanup(func() {
		ctx := context.Background()
		st, err := h.Inspect("ctl")
		if err != nil {
			t.Error(err)
			return
		}
		if err := h.Children().RemoveAll(ctx, "ctl", st.Created); err != nil {
			t.Error(err)
		}
		if err := h.Stop(ctx, "ctl"); err != nil {
			t.Error(err)
		}
		if err := h.Remove(ctx, "ctl"); err != nil {
			t.Error(err)
		}
	})
	does := func(line string, code int, want ...string) string {
		t.Helper()
		out, st, err := sh(t, sb, line)
		if err != nil || st.Code != code {
			t.Errorf("%s: %+v, %v: %s", line, st, err, out)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: got %s, want %q", line, out, w)
			}
		}
		return strings.TrimSpace(out)
	}
	does("msb-ctl ping", 0, `"sandbox":"ctl","children":0,"made":0,"budget":{`)
	does("msb-ctl spawn --policy /etc/passwd", 125, "policy")
	does("msb-ctl spawn --cpus 2", 125, "more than the")
	does("msb-ctl destroy other; msb-ctl exec ctl -- id", 125, "no child of that name")
	does("echo x >>/run/msb/msb-ctl; rm -f /run/msb/msb-ctl; msb-ctl ping", 0, `"made":0`) // it can't be changed
	name := does("msb-ctl spawn --allow a.example --allow b.example", 0)
	does("msb-ctl list", 0, `"name":"`+name+`","parent":"ctl"`, `"running":true`)
	does("msb-ctl exec "+name+" -- sh -c 'echo out; echo err >&2; exit 7'", 7, "out\n", "err\n")
	does("msb-ctl exec "+name+" -- msb-ctl spawn", 125, "1 deep at most")
	does("msb-ctl run -- true", 125, "at most 1 may be at once")
	if st, err := h.Inspect(name); err != nil || st.Parent != "ctl" || !st.Running || st.Lifetime != time.Minute {
		t.Errorf("%+v, %v", st, err)
	}
	sendsGarbage(t, sb)
	// Many at once, some of them killed, and garbage: the sandbox lives on and answers.
	does(`i=0; while [ $i -lt 30 ]; do msb-ctl list >/dev/null 2>&1 & i=$((i+1)); done; kill -9 $! ; wait; /dev/shm/garbage; msb-ctl ping`, 0, "garbage was sent\n", `"children":1`)
	does("msb-ctl destroy "+name+" && msb-ctl list", 0, "[]")
	log, err := os.ReadFile(filepath.Join(h.Dir(), "sandboxes", "ctl", "audit.jsonl"))
	for _, part := range []string{`"program":"sh","exit_code":7,"verb":"exec","child":"` + name + `"`, `"verb":"spawn","child":"` + name + `"`, `"verb":"destroy","child":"other"`} {
		if !strings.Contains(string(log), part) {
			t.Errorf("%v: %s is not in the audit log", err, part)
		}
	}
	out, st, err := asUser(t, sb, "1234", "msb-ctl ping")
	if err != nil || st.Code != 125 || !strings.Contains(out, "permission denied") {
		t.Errorf("another user: %+v, %v: %s", st, err, out)
	}
}

// sendsGarbage has in the guest /dev/shm/garbage, which sends no requests to the socket: the image has no program that could.
func sendsGarbage(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	const program = `package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
)

func main() {
	for range 3 {
		for _, text := range [][]byte{make([]byte, 300000), bytes.Repeat([]byte("["), 131000), []byte("[]\n"), []byte("{\"verb\":"), []byte("{\"verb\":\"ping\"}\n{\"verb\":\"ping\"}\n")} {
			c, err := net.Dial("unix", "/run/msb/children.sock")
			if err != nil {
				panic(err)
			}
			_, _ = c.Write(text)
			_ = c.(*net.UnixConn).CloseWrite()
			if answer, _ := io.ReadAll(c); bytes.Contains(answer, []byte("result")) {
				panic(string(answer))
			}
			_ = c.Close()
		}
	}
	fmt.Println("garbage was sent")
}
`
	source := filepath.Join(t.TempDir(), "garbage.go")
	built := strings.TrimSuffix(source, ".go")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", built, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Files().WriteFile(t.Context(), "/dev/shm/garbage", bytes.NewReader(text), agentclient.WriteOptions{Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
}

// asUser is sh as somebody else.
func asUser(t *testing.T, sb *sandbox.Sandbox, user, line string) (string, sandbox.ExitStatus, error) {
	t.Helper()
	var out bytes.Buffer
	st, err := sb.Exec(t.Context(), sandbox.ExecOptions{Argv: []string{"/bin/sh", "-c", line}, User: user, Stdout: &out, Stderr: &out})
	return out.String(), st, err
}
