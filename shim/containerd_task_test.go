//go:build containerdtest

package shim_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// lines is an output that is read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// background starts a ctr that runs beside the test.
func (n *node) background(t *testing.T, args ...string) (*exec.Cmd, *lines) {
	t.Helper()
	cmd, out := n.command(args...), &lines{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, out
}

// status is a task's, as ctr tasks ls shows it; "" if there is none.
func (n *node) status(id string) string {
	for line := range strings.Lines(n.try("tasks", "ls").out) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == id {
			return f[2]
		}
	}
	return ""
}

var eventLine = regexp.MustCompile(`(/tasks/[a-z-]+) `)

// TestContainerdTask: one container's life by ctr, with a restart of containerd in the middle.
func TestContainerdTask(t *testing.T) {
	n := startNode(t)
	events, heard := n.background(t, "events")
	waitFor(t, "ctr to hear events", func() bool {
		n.try("containers", "label", "none", "a=b")
		n.must(t, "images", "label", testImage, "a=b")
		return strings.Contains(heard.String(), "/images/update")
	})
	n.must(t, n.run("msb", "-d", "--memory-limit", "67108864", testImage, "t", "/bin/sh", "-c", "trap 'echo term; exit 5' TERM; while :; do sleep 1; done")...)

	exec := func(stdin string, args ...string) result {
		return n.feed(stdin, slices.Concat([]string{"tasks", "exec", "--exec-id", "e"}, args)...)
	}
	if r := exec("", "t", "/bin/sh", "-c", "echo out; echo err >&2; exit 3"); r.code != 3 || r.out != "out\n" || !strings.Contains(r.err, "err\n") {
		t.Errorf("exec: %+v", r)
	}
	big := strings.Repeat("0123456789abcde\n", 20000)
	if r := exec(big, "t", "/bin/cat"); r.code != 0 || r.out != big {
		t.Errorf("exec with a standard input: exit code %d, %d bytes of %d, %s", r.code, len(r.out), len(big), r.err)
	}
	if r := exec("", "t", "/not/there"); r.code == 0 || !strings.Contains(r.err, "/not/there") {
		t.Errorf("exec of what isn't there: %+v", r)
	}
	if r := exec("", "--user", "1000", "--cwd", "/tmp", "t", "/bin/sh", "-c", "id -u; pwd"); r.out != "1000\n/tmp\n" {
		t.Errorf("exec as another user: %+v", r)
	}
	n.terminal(t)
	n.must(t, "tasks", "pause", "t")
	if got := n.status("t"); got != "PAUSED" {
		t.Errorf("paused: %s", got)
	}
	if r := exec("", "t", "/bin/true"); r.code == 0 || !strings.Contains(r.err, "resume it first") {
		t.Errorf("exec in a paused container: %+v", r)
	}
	n.must(t, "tasks", "resume", "t")
	if out := n.must(t, "tasks", "metrics", "t"); !regexp.MustCompile(`memory.usage_in_bytes +[1-9]|memory.current +[1-9]|Memory|memory`).MatchString(out) {
		t.Errorf("metrics: %s", out)
	}
	if out := n.must(t, "tasks", "ps", "t"); strings.Count(out, "\n") < 2 {
		t.Errorf("ps: %s", out)
	}

	if r := exec("", "t", "/bin/tail", "/dev/zero"); r.code != 137 {
		t.Errorf("an exec beyond the memory limit: %+v", r)
	}
	waitFor(t, "the OOM event", func() bool { return strings.Contains(heard.String(), "/tasks/oom") })

	_ = events.Process.Kill()
	n.stop(t)
	n.start(t)
	if got := n.status("t"); got != "RUNNING" {
		t.Errorf("after containerd's restart: %q", got)
	}
	if r := exec("", "t", "/bin/echo", "again"); r.out != "again\n" {
		t.Errorf("exec after containerd's restart: %+v", r)
	}
	n.must(t, "tasks", "kill", "-s", "SIGTERM", "t")
	waitFor(t, "the container to end", func() bool { return n.status("t") == "STOPPED" })
	if r := n.try("tasks", "delete", "t"); !strings.Contains(r.err, "exit code 5") {
		t.Errorf("delete: %+v", r)
	}
	n.must(t, "containers", "rm", "t")
	want := []string{"/tasks/create", "/tasks/start", "/tasks/exec-added", "/tasks/exec-started", "/tasks/exit"}
	var got []string
	for _, m := range eventLine.FindAllStringSubmatch(heard.String(), -1) {
		got = append(got, m[1])
	}
	if len(got) < len(want) || !slices.Equal(got[:len(want)], want) || !slices.Contains(got, "/tasks/paused") || !slices.Contains(got, "/tasks/resumed") {
		t.Errorf("events %v, want at first %v", got, want)
	}
	n.isClean(t)
}

// terminal is an exec with a terminal of a size.
func (n *node) terminal(t *testing.T) {
	t.Helper()
	cmd := n.command("tasks", "exec", "-t", "--exec-id", "tty", "t", "/bin/sh", "-c", "tty; until stty size | grep '33 99'; do sleep 0.1; done; read line; echo got $line")
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 99})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := &lines{}
	done := make(chan error, 1)
	go func() { _, err := io.Copy(out, f); done <- err }()
	waitFor(t, "the terminal's size", func() bool { return strings.Contains(out.String(), "33 99") }, func() any { return out.String() })
	if _, err := f.WriteString("hello\n"); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil && !errors.Is(err, syscall.EIO) { // EIO is a terminal's end
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "/dev/pts/") || !strings.Contains(out.String(), "got hello") {
		t.Errorf("%v, got %q", err, out)
	}
}

// TestContainerdPod: two containers of a pod are in one machine, and share its network and nothing else. What CRI asks for is
// asked for here by its annotations.
func TestContainerdPod(t *testing.T) {
	n := startNode(t)
	pod := func(kind, id string, args ...string) []string {
		return n.run("msb", slices.Concat([]string{"-d", "--annotation", "io.kubernetes.cri.container-type=" + kind, "--annotation", "io.kubernetes.cri.sandbox-id=pod", testImage, id}, args)...)
	}
	n.must(t, pod("sandbox", "pod", "/not/there")...) // the pause image isn't run
	n.must(t, pod("container", "a", "/bin/sh", "-c", "mkdir /www; echo from a > /www/index.html; exec httpd -f -p 127.0.0.1:8080 -h /www")...)
	n.must(t, pod("container", "b", "/bin/sleep", "1000")...)
	if got := strings.Count(strings.Join(n.lines(), "\n"), "containerd-shim-msb-v1 -namespace"); got != 1 {
		t.Errorf("%d shims, want one\n%q", got, n.lines())
	}
	exec := func(id string, args ...string) result {
		return n.try(slices.Concat([]string{"tasks", "exec", "--exec-id", "e", id}, args)...)
	}
	n.inGroup(t, "pod")
	waitFor(t, "a to serve b", func() bool { return exec("b", "/bin/wget", "-q", "-O-", "http://127.0.0.1:8080/").out == "from a\n" })
	if r := exec("b", "/bin/sh", "-c", "ls /www; ps | grep '[h]ttpd -f'"); r.out != "" || !strings.Contains(r.err, "/www") {
		t.Errorf("b sees of a: %+v", r)
	}
	n.must(t, "tasks", "kill", "-s", "SIGKILL", "a")
	waitFor(t, "a to end", func() bool { return n.status("a") == "STOPPED" })
	if got := n.status("b"); got != "RUNNING" {
		t.Errorf("b is %s", got)
	}
	n.try("tasks", "delete", "a")
	n.must(t, "tasks", "kill", "-s", "SIGKILL", "pod")
	waitFor(t, "b to end with the pod", func() bool { return n.status("b") == "STOPPED" })
	for _, id := range []string{"b", "pod"} {
		n.try("tasks", "delete", id)
	}
	n.must(t, "containers", "rm", "a", "b", "pod")
	n.isClean(t)
}

// inGroup looks for shim, supervisor and VMM in the control group that ctr named for the pod's first container.
func (n *node) inGroup(t *testing.T, name string) {
	t.Helper()
	groups := controlGroups(name)
	if len(groups) == 0 {
		t.Errorf("there is no control group %s", name)
	}
	for _, file := range groups {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range n.processes() {
			if strings.Contains(p.line, "containerd-shim-msb-v1") && !slices.Contains(strings.Fields(string(b)), strconv.Itoa(p.pid)) {
				t.Errorf("%d %s is not in %s, which has %q", p.pid, p.line, file, b)
			}
		}
		if got := len(strings.Fields(string(b))); got < 3 {
			t.Errorf("%s has %d processes: %q", file, got, b)
		}
	}
}

func (n *node) lines() (all []string) {
	for _, p := range n.processes() {
		all = append(all, p.line)
	}
	return all
}
