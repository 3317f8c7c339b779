//go:build vmtest

package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestVMServicesComeBack runs the command of a unit as systemd does: again after it failed, and no more once it
// succeeded. The supervisor is killed, then the sandbox is stopped.
func TestVMServicesComeBack(t *testing.T) {
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(t.TempDir(), "home")
	env := []string{sandbox.EnvHome + "=" + home}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, env, args...)) }
	defer func() { _ = command(t, env, "rm", "--force", "web").Run() }() // after a failure
	msb("create", "--vm", "qemu", "--disk", "256M", "web").want(t, 0, "web\n")
	u := parseUnit(t, msb("service", "web", "--", "sh", "-c", "echo up >> /ups; sleep 1000").out)
	start := func() *running {
		cmd := exec.CommandContext(t.Context(), u.argv[0], u.argv[1:]...)
		cmd.Env = append(u.env, asMSB+"=1", "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
		r := &running{Cmd: cmd, ended: make(chan struct{})}
		r.Stdout, r.Stderr = &r.out, &r.err
		r.start(t)
		r.out.await(t, "web\n")
		return r
	}
	var record struct {
		Supervisor struct {
			PID int `json:"pid"`
		} `json:"supervisor"`
	}
	for n := 1; n <= 2; n++ {
		r := start()
		if got := msb("exec", "web", "--", "sh", "-c", "until [ -s /ups ]; do sleep 0.1; done; sync; cat /ups"); got.out != strings.Repeat("up\n", n) {
			t.Errorf("start %d: the command ran %q, %+v", n, got.out, got)
		}
		if n == 2 {
			r.signal(t, syscall.SIGTERM) // systemctl stop
			r.wait(t).want(t, 0, "web\n")
			break
		}
		b, err := exec.CommandContext(t.Context(), "cat", filepath.Join(home, "sandboxes", "web", "run.json")).Output()
		if err != nil || json.Unmarshal(b, &record) != nil || record.Supervisor.PID == 0 {
			t.Fatalf("%s, %v", b, err)
		}
		if err := syscall.Kill(record.Supervisor.PID, syscall.SIGKILL); err != nil {
			t.Fatal(strconv.Itoa(record.Supervisor.PID), err)
		}
		r.wait(t).says(t, exitAgent, "supervisor ended unexpectedly", "msb start web")
	}
	if got := msb("inspect", "web"); strings.Contains(got.out, `"running": true`) {
		t.Errorf("it runs on: %s", got.out)
	}
	r := start()
	msb("stop", "web").want(t, 0, "web\n") // by hand: systemd does not start it again
	r.wait(t).want(t, 0, "web\n")
}
