//go:build vmtest

package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestVMAttachJoinsAndLeaves: somebody types into a shell that runs detached, leaves it by docker's keys, and is back. A
// second command has signals, and its exit code.
func TestVMAttachJoinsAndLeaves(t *testing.T) {
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	msb("run", "--vm", "qemu", "-q", "--disk", "1G", "--name", "box", "-dit", "--", "sh").want(t, 0, "box\n")
	defer func() { _ = command(t, home, "rm", "--force", "box").Run() }()

	at := terminalOf(t, command(t, home, "attach", "box"))
	at.key(t, "until stty size | grep '^33 101'; do sleep 0.1; done; a=ready; echo $a\r")
	at.out.await(t, "33 101\r\nready")
	at.key(t, "\x10\x11")
	at.out.await(t, "detached; box runs on")
	if got := at.wait(t); got.code != 0 {
		t.Errorf("after the detach keys: %+v", got)
	}
	if now := at.mode(t); now != at.before {
		t.Errorf("the terminal is left as %+v, was %+v", now, at.before)
	}
	again := terminalOf(t, command(t, home, "attach", "--detach-keys", "x", "box"))
	again.key(t, "echo $a again; exit 4\r") // without an x: that of "exit" ends the attachment
	if got := again.wait(t); got.code != 0 || strings.Contains(got.out, "33 101") {
		t.Errorf("after x: %+v", got)
	}
	again = terminalOf(t, command(t, home, "attach", "box"))
	again.key(t, "\x15echo $a again; exit 4\r")
	again.out.await(t, "ready again")
	if got := again.wait(t); got.code != 4 {
		t.Errorf("after exit: %+v", got)
	}
	msb("attach", "box").says(t, exitSandbox, "has ended", "msb logs box")

	msb("job", "rm", "box", "main").want(t, 0, "main\n")
	msb("exec", "-d", "--job", "main", "box", "--", "sh", "-c", "trap 'echo caught; exit 6' INT; echo before; while :; do echo tick; sleep 0.2; done").want(t, 0, "main\n")
	eventually(t, "output from before", func() bool { return strings.HasPrefix(msb("logs", "box").out, "before\n") })
	cmd := command(t, home, "attach", "box")
	r := &running{Cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout = &r.out
	r.start(t)
	r.out.await(t, "tick")
	r.signal(t, syscall.SIGINT)
	if got := r.wait(t); got.code != 6 || !strings.HasSuffix(got.out, "caught\n") || strings.Contains(got.out, "before") {
		t.Errorf("after SIGINT: %+v", got)
	}
	at = terminalOf(t, command(t, home, "exec", "-it", "--detach-keys", "ctrl-]", "box", "sh"))
	at.key(t, "sleep 4321\r")
	eventually(t, "the command runs", func() bool { return msb("exec", "box", "--", "pidof", "sleep").code == 0 })
	at.key(t, "\x1d")
	at.out.await(t, "detached; the command runs on in box")
	if got := at.wait(t); got.code != 0 {
		t.Errorf("after the detach keys: %+v", got)
	}
	msb("exec", "box", "--", "killall", "sleep").want(t, 0, "")
	msb("stop", "box").want(t, 0, "box\n")
	msb("attach", "box").says(t, exitSandbox, "msb start box")

	at = terminalOf(t, command(t, home, "run", "--vm", "qemu", "-q", "--disk", "1G", "--name", "fore", "-it", "--", "sh", "-c", "a=ready; echo $a; exec sleep 4321"))
	defer func() { _ = command(t, home, "rm", "--force", "fore").Run() }()
	at.out.await(t, "ready")
	at.key(t, "\x10\x11")
	if got := at.wait(t); got.code != 0 {
		t.Errorf("run after the detach keys: %+v", got)
	}
	if got := msb("exec", "fore", "--", "pidof", "sleep"); got.code != 0 {
		t.Errorf("the command ended with its msb: %+v", got)
	}
	at = terminalOf(t, command(t, home, "attach", "fore"))
	eventually(t, "its terminal is joined", func() bool { return at.mode(t) != at.before })
	at.key(t, "\x03") // to the same terminal, whose foreground process it ends
	if got := at.wait(t); got.code != 130 {
		t.Errorf("ctrl-c in what was joined again: %+v", got)
	}

	// Whoever leaves a shell of run -it is back in it; its exit code is that of the command, and it may end at once.
	at = terminalOf(t, command(t, home, "run", "--vm", "qemu", "-q", "--disk", "1G", "--name", "back", "-it", "--", "sh"))
	defer func() { _ = command(t, home, "rm", "--force", "back").Run() }()
	at.key(t, "a=here; tty; stty size; echo $a\r")
	at.out.await(t, "33 101\r\nhere")
	at.key(t, "\x10\x11")
	if got := at.wait(t); got.code != 0 {
		t.Errorf("run after the detach keys: %+v", got)
	}
	at = terminalOf(t, command(t, home, "attach", "back"))
	at.key(t, "echo $a again; exit 5\r")
	at.out.await(t, "here again")
	if got := at.wait(t); got.code != 5 {
		t.Errorf("after exit: %+v", got)
	}
	at = terminalOf(t, command(t, home, "run", "--vm", "qemu", "-q", "--disk", "1G", "--name", "short", "-it", "--", "sh", "-c", "echo short; exit 7"))
	defer func() { _ = command(t, home, "rm", "--force", "short").Run() }()
	if got := at.wait(t); got.code != 7 || !strings.Contains(got.out, "short") {
		t.Errorf("one that ends at once: %+v", got)
	}
}
