//go:build vmtest

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestVMJobsFromTheCommandLine starts, follows, waits for, kills and removes jobs, in one guest, whose supervisor is
// killed in the end.
func TestVMJobsFromTheCommandLine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	home := []string{sandbox.EnvHome + "=" + dir}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	msb("run", "--vm", "qemu", "-q", "--disk", "1G", "--name", "j", "-d").want(t, 0, "j\n")
	defer func() { _ = command(t, home, "rm", "--force", "j").Run() }()

	// "main" is the image's own command, a shell that ended.
	msb("exec", "-d", "--job", "build", "j", "sh", "-c", "echo one; echo two >&2; echo three; exit 4").want(t, 0, "build\n")
	msb("job", "wait", "j", "build").want(t, 0, "4\n")
	if got := msb("job", "logs", "j", "build"); got.code != 0 || got.out != "one\nthree\n" || got.err != "two\n" {
		t.Errorf("logs: %+v", got)
	}
	msb("job", "logs", "--since", "1h", "-f", "j", "build").want(t, 0, "one\nthree\n")
	msb("exec", "-d", "--job", "lines", "j", "sh", "-c", "echo one; echo three").want(t, 0, "lines\n")
	msb("job", "wait", "j", "lines").want(t, 0, "0\n")
	msb("job", "logs", "-n", "1", "j", "lines").want(t, 0, "three\n")
	msb("job", "logs", "--grep", "^o", "j", "lines").want(t, 0, "one\n")
	if got := msb("job", "logs", "-t", "-n", "1", "j", "lines"); !strings.HasSuffix(got.out, "Z three\n") {
		t.Errorf("logs -t: %+v", got)
	}
	var line logLine
	if got := msb("job", "logs", "--json", "-n", "1", "j", "lines"); json.Unmarshal([]byte(got.out), &line) != nil || line.Text == nil || *line.Text != "three\n" || line.Stream != "stdout" || line.Time.IsZero() {
		t.Errorf("logs --json: %+v", got)
	}
	msb("exec", "-d", "--job", "none", "j", "--", "nosuch").says(t, 127, "nosuch")
	msb("exec", "-d", "--job", "build", "j", "true").says(t, exitSandbox, "exists already")

	msb("exec", "-d", "-e", "A=b", "j", "sh", "-c", "echo $A; exec sleep 1000").want(t, 0, "job-1\n")
	msb("exec", "-d", "--job", "server", "j", "sh", "-c", "echo listening; exec sleep 1000").want(t, 0, "server\n")
	msb("job", "rm", "j", "job-1").says(t, exitSandbox, "is running", "--force")
	msb("job", "kill", "-s", "TERM", "j", "job-1").want(t, 0, "job-1\n")
	msb("job", "wait", "j", "job-1").want(t, 0, "143\n")
	if got := msb("job", "ls", "j").out; !strings.Contains(got, "killed SIGTERM") || !strings.Contains(got, "exited 4") || !strings.Contains(got, "running") {
		t.Errorf("ls: %s", got)
	}
	msb("job", "rm", "j", "job-1").want(t, 0, "job-1\n")
	eventually(t, "the server's output", func() bool { return msb("job", "logs", "j", "server").out == "listening\n" })

	var processes []sandbox.Process
	if got := msb("top", "--json", "j"); json.Unmarshal([]byte(got.out), &processes) != nil ||
		!slices.ContainsFunc(processes, func(p sandbox.Process) bool {
			return slices.Equal(p.Command, []string{"sleep", "1000"}) && p.Memory > 0
		}) ||
		slices.ContainsFunc(processes, func(p sandbox.Process) bool { return p.PID == 1 || p.Parent == 2 }) {
		t.Errorf("top: %+v", got)
	}

	var run struct{ Supervisor struct{ PID int } }
	b, err := os.ReadFile(filepath.Join(dir, "sandboxes", "j", "run.json"))
	if err != nil || json.Unmarshal(b, &run) != nil {
		t.Fatalf("%s, %v", b, err)
	}
	if err := syscall.Kill(run.Supervisor.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	msb("job", "wait", "j", "server").says(t, exitSandbox, "is lost", "supervisor was killed")
	msb("job", "logs", "-f", "j", "server").want(t, 0, "listening\n")
	msb("job", "ls", "-q", "j").want(t, 0, "main\nbuild\nlines\nserver\n")
	msb("job", "rm", "--force", "j", "server", "build").want(t, 0, "server\nbuild\n")
}

// TestVMLogsOfADetachedRun keeps the output of the command, under a name of msb's choice.
func TestVMLogsOfADetachedRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	home := []string{sandbox.EnvHome + "=" + dir}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	policy := write(t, "policy.toml", "version = 1\n")
	got := msb("run", "--vm", "qemu", "-q", "--policy", policy, "--disk", "1G", "-d", "-e", "A=b", "--", "sh", "-c", "echo $A; echo err >&2; exit 3")
	name := strings.TrimSpace(got.out)
	if got.code != 0 || sandbox.CheckName(name) != nil {
		t.Fatalf("%+v, want a name", got)
	}
	defer func() { _ = command(t, home, "rm", "--force", name).Run() }()
	if got := msb("logs", "-f", name); got.code != 0 || got.out != "b\n" || got.err != "err\n" {
		t.Errorf("logs: %+v", got)
	}
	msb("wait", name).want(t, 0, "3\n")
	msb("kill", name).says(t, exitSandbox, "has ended")
	msb("shell", "-e", "A=b", "-w", "/tmp", name).want(t, 0, "") // its standard input is empty
	if got := msb("restart", "-q", name); got.code != 0 || got.out != name+"\n" || got.err != "" {
		t.Errorf("restart -q: %+v", got)
	}
	if err := os.WriteFile(policy, []byte("version = 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	msb("restart", name).says(t, exitPolicyInvalid, "version 2") // and goes on, which it would not after a stop:
	msb("exec", name, "true").want(t, 0, "")
	msb("stop", name).want(t, 0, name+"\n")
	msb("start", name).says(t, exitPolicyInvalid, "version 2")
	if got := msb("logs", "--console", "-n", "1", name); got.code != 0 || got.err != "" {
		t.Errorf("logs --console: %+v", got)
	}
	msb("rm", name).want(t, 0, name+"\n")
	msb("run", "--vm", "qemu", "-q", "--disk", "1G", "-d", "--", "nosuch").says(t, 127, "nosuch")
	msb("ls", "-q").want(t, 0, "")

	// Standard input of what runs detached.
	msb("run", "--vm", "qemu", "-q", "-d", "-i", "--name", "reads", "--", "cat").want(t, 0, "reads\n")
	for _, part := range []struct{ text, flag string }{{"one\n", "--eof=false"}, {"two\n", "--eof"}} {
		input := command(t, home, "job", "input", part.flag, "reads", "main")
		input.Stdin = strings.NewReader(part.text)
		finish(t, input).want(t, 0, "")
	}
	msb("wait", "reads").want(t, 0, "0\n")
	msb("logs", "reads").want(t, 0, "one\ntwo\n")
	msb("job", "input", "--eof", "reads", "main").says(t, exitSandbox, "has ended")
	msb("rm", "--force", "reads").want(t, 0, "reads\n")

	// One of --rm goes with its command; what waits for it learns how that ended.
	msb("run", "--vm", "qemu", "-q", "-d", "--rm", "--name", "brief", "--", "sh", "-c", "until [ -e /go ]; do sleep 0.1; done; exit 5").want(t, 0, "brief\n")
	defer func() { _ = command(t, home, "rm", "--force", "brief").Run() }()
	wait := command(t, home, "wait", "brief")
	var code strings.Builder
	wait.Stdout = &code
	if err := wait.Start(); err != nil {
		t.Fatal(err)
	}
	job := filepath.Join(dir, "sandboxes", "brief", "jobs", "main.json")
	eventually(t, "msb wait has the job's file open", func() bool { return slices.Contains(openFiles(wait.Process.Pid), job) })
	msb("exec", "brief", "touch", "/go") // which may end with the sandbox
	if err := wait.Wait(); err != nil || code.String() != "5\n" {
		t.Errorf("wait: %v, %q", err, code.String())
	}
	eventually(t, "the sandbox goes", func() bool { return msb("ls", "-q").out == "" })
	msb("run", "--vm", "qemu", "-q", "--rm", "--name", "brief", "--", "sh", "-c", "exit 6").want(t, 6, "")
	msb("ls", "-q").want(t, 0, "")

	// Nobody would end it once its command has gone with msb itself.
	killed := command(t, home, "run", "--vm", "qemu", "-q", "--rm", "--name", "brief", "--", "sleep", "1000")
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command runs", func() bool { return msb("exec", "brief", "pidof", "sleep").code == 0 })
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait() // killed
	eventually(t, "the sandbox goes with its caller", func() bool { return msb("ls", "-q").out == "" })
}

// openFiles are the paths of a process's open files.
func openFiles(pid int) (paths []string) {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // a constant pattern
	for _, link := range links {
		path, _ := os.Readlink(link) // "" once it is closed
		paths = append(paths, path)
	}
	return paths
}
