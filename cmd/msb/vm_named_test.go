//go:build vmtest

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox"
)

// TestVMNamedSandboxFromTheCommandLine makes, starts, uses, stops and removes one, as a person does.
func TestVMNamedSandboxFromTheCommandLine(t *testing.T) {
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	defer func() { _ = command(t, home, "rm", "--force", "web", "once").Run() }() // after a failure

	pcap := filepath.Join(t.TempDir(), "link.pcapng")
	policy := write(t, "policy.toml", "version = 1\n")
	msb("create", "--vm", "qemu", "--disk", "1G", "-e", "SET=at creation", "--pcap", pcap, "--policy", policy, "web").want(t, 0, "web\n")
	msb("create", "web").says(t, exitSandbox, "exists already", "msb start web")
	msb("create", "../web").says(t, exitSandbox, "lower-case letters")
	msb("exec", "web", "--", "true").says(t, exitSandbox, "not running", "msb start web")
	msb("stop", "web").want(t, 0, "web\n")
	msb("start", "-q", "web", "nosuch").says(t, exitSandbox, "no such sandbox: nosuch", "msb ls")
	msb("start", "web").want(t, 0, "web\n")
	msb("exec", "web", "sh", "-c", "echo out; echo err >&2; echo $SET > /kept; exit 7").want(t, 7, "out\n")
	msb("exec", "-e", "SET=at exec", "web", "--", "sh", "-c", "echo $SET; hostname").want(t, 0, "at exec\nweb\n")
	msb("exec", "web").says(t, exitOther, "name the command")
	msb("rm", "web").says(t, exitSandbox, "msb stop web")

	in := command(t, home, "exec", "-i", "web", "cat")
	in.Stdin = strings.NewReader("through standard input")
	finish(t, in).want(t, 0, "through standard input")

	var st sandbox.Status
	if got := msb("inspect", "web"); json.Unmarshal([]byte(got.out), &st) != nil || !st.Running || st.Info == nil || len(st.Info.Confinement) == 0 {
		t.Errorf("inspect: %+v", got)
	}
	if got := msb("ls"); got.code != 0 || !strings.Contains(got.out, "web   up ") {
		t.Errorf("ls: %+v", got)
	}
	msb("exec", "-it", "web", "sh").says(t, exitOther, "needs a terminal")
	if err := os.WriteFile(policy, []byte("version = 1\nhostz = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); !strings.Contains(msb("inspect", "web").out, "hostz"); {
		if time.Now().After(end) {
			t.Fatal("inspect doesn't tell that the new policy was refused")
		}
	}
	if err := os.WriteFile(policy, []byte("version = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	msb("capture", "web", "off").want(t, 0, "")
	msb("capture", "web", "on").want(t, 0, "")
	msb("exec", "web", "sh", "-c", "nslookup a.example >&2; true").want(t, 0, "") // a part without packets would not be kept
	msb("stop", "web").want(t, 0, "web\n")
	msb("start", "-q", "web").want(t, 0, "web\n")
	msb("exec", "web", "cat", "/kept").want(t, 0, "at creation\n")
	directory := strings.TrimPrefix(home[0], sandbox.EnvHome+"=") + "/sandboxes/web"
	if err := os.Remove(directory + "/control.sock"); err != nil {
		t.Fatal(err)
	}
	msb("rm", "-f", "web").want(t, 0, "web\n")
	parts, err := filepath.Glob(pcap + "*")
	if err != nil || len(parts) < 2 { // one of each start; a part without a frame displaces none
		t.Errorf("the parts of two starts are %q, %v", parts, err)
	}
	for _, part := range parts {
		if got := msb("review", "--policy", write(t, "none.toml", "version = 1\n"), part); got.code != 0 {
			t.Errorf("%s: %+v", part, got)
		}
	}
	msb("ls", "-q").want(t, 0, "")

	// A run with a name stops with its command, and stays.
	msb("run", "--vm", "qemu", "-q", "--name", "once", "--", "sh", "-c", "echo ran > /it; exit 3").want(t, 3, "")
	msb("ls", "-q").want(t, 0, "once\n")
	msb("env", "set", "once", "LATER=set later", "GONE=1").want(t, 0, "")
	msb("env", "unset", "once", "GONE").want(t, 0, "")
	msb("env", "ls", "once").want(t, 0, "LATER=set later\n")
	msb("rename", "once", "again").want(t, 0, "again\n")
	msb("start", "-q", "again").want(t, 0, "again\n")
	msb("rename", "again", "once").says(t, exitSandbox, "msb stop again")
	msb("exec", "again", "sh", "-c", "cat /it; hostname; echo $LATER").want(t, 0, "ran\nagain\nset later\n")
	msb("stop", "again").want(t, 0, "again\n")
	msb("rename", "again", "once").want(t, 0, "once\n")
	msb("rm", "-f", "once").want(t, 0, "once\n")
	if left, err := exec.CommandContext(t.Context(), "find", strings.TrimPrefix(home[0], sandbox.EnvHome+"=")+"/sandboxes", "-mindepth", "1").Output(); err != nil || len(left) > 0 {
		t.Errorf("left: %s (%v)", left, err)
	}
}

// TestI8_VMSupervisorCrashesLeaveNoCore crashes a supervisor whose caller had core files on. Its parent is this test
// by then, which the kernel tells whether a core was dumped.
func TestI8_VMSupervisorCrashesLeaveNoCore(t *testing.T) {
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	coresOn(t)
	// Without the second, Go's runtime asks for no core itself.
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home"), "GOTRACEBACK=crash"}
	finish(t, command(t, home, "run", "--vm", "qemu", "-q", "--name", "crashes", "-d")).want(t, 0, "crashes\n")
	defer func() { _ = command(t, home, "rm", "--force", "crashes").Run() }()
	below := processesBelow(os.Getpid())
	if len(below) < 2 {
		t.Fatalf("processes %v, want a supervisor and its machine", below)
	}
	var status unix.WaitStatus
	if err := unix.Kill(below[0].pid, unix.SIGSYS); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(below[0].pid, &status, 0, nil); err != nil || !status.Signaled() || status.CoreDump() {
		t.Errorf("%v ended with %x (%v), want it crashed and no core written", below[0], status, err)
	}
	other := exec.CommandContext(t.Context(), "sh", "-c", "kill -SYS $$")
	other.Dir = t.TempDir()
	how := other.Run()
	if st, ok := other.ProcessState.Sys().(syscall.WaitStatus); !ok || !st.CoreDump() {
		t.Logf("this machine writes no core of any process (%v), so that only the limits tell: TestI8_VMNoProcessWritesACoreFile", how)
	}
}

// TestVMInterruptedStartsHaveTheirCode, and leaves a sandbox that is stopped.
func TestVMInterruptedStartsHaveTheirCode(t *testing.T) {
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	defer func() { _ = command(t, home, "rm", "--force", "web").Run() }()
	msb("create", "--vm", "qemu", "--disk", "64M", "web").want(t, 0, "web\n")
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		start := command(t, home, "start", "-q", "web")
		if err := start.Start(); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for !strings.Contains(msb("ls").out, "starting") {
			if time.Since(begun) > 2*time.Minute {
				_ = start.Process.Kill()
				_ = start.Wait()
				t.Fatalf("%s: the sandbox doesn't start: %s", sig, msb("ls").out)
			}
		}
		if err := start.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = start.Wait()
		if got := start.ProcessState.ExitCode(); got != code {
			t.Errorf("%s: code %d, want %d", sig, got, code)
		}
		if got := msb("ls").out; !strings.Contains(got, "stopped") {
			t.Errorf("%s: %s", sig, got)
		}
	}
}
