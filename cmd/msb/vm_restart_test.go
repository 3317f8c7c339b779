//go:build vmtest

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestVMRestartsOfACommand runs one again that fails, and another that msb kill ends for good.
func TestVMRestartsOfACommand(t *testing.T) {
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	msb("run", "--vm", "qemu", "-q", "--disk", "1G", "--name", "r", "-d", "--restart", "on-failure:2", "--", "sh", "-c", "echo run; exit 3").want(t, 0, "r\n")
	defer func() { _ = command(t, home, "rm", "--force", "r").Run() }()
	msb("wait", "r").want(t, 0, "3\n")
	msb("logs", "r").want(t, 0, "run\nrun\nrun\n")
	if got := msb("inspect", "r").out; !strings.Contains(got, `"restart": "on-failure:2"`) || !strings.Contains(got, `"restart_count": 2`) {
		t.Errorf("inspect: %s", got)
	}
	for event, lines := range map[string]int{"create": 1, "start": 1, "die": 3, "restart": 2, "exec_create": 1, "exec_start": 3, "stop": 0} {
		if got := msb("events", "--filter", "event="+event, "r").out; strings.Count(got, "\n") != lines {
			t.Errorf("%d lines of %s wanted: %s", lines, event, got)
		}
	}
	msb("exec", "r", "--", "sh", "-c", "exit 7").want(t, 7, "")
	eventually(t, "the end of exec", func() bool {
		return strings.HasSuffix(msb("events", "--filter", "event=exec_die", "r").out, " exec.die sh exit code 7\n")
	})
	msb("job", "rm", "r", "main").want(t, 0, "main\n")
	msb("exec", "-d", "--job", "main", "r", "--", "sh", "-c", "echo up; sleep 1000; exit 1").want(t, 0, "main\n")
	eventually(t, "the command runs", func() bool { return msb("logs", "r").out == "up\n" })
	msb("exec", "r", "--", "killall", "sleep").want(t, 0, "") // it fails, and runs again
	eventually(t, "it runs again", func() bool { return msb("logs", "r").out == "up\nup\n" })
	msb("kill", "r").want(t, 0, "r\n")
	msb("wait", "r").want(t, 0, "137\n")
}

// TestVMCrashedGuestsRestart: a guest that leaves, and one whose machine is killed, is started again with its command, its
// disk, and what it has used of its policy's egress_bytes.
func TestVMCrashedGuestsRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	home := []string{sandbox.EnvHome + "=" + dir}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	policy := write(t, "policy.toml", "version = 1\n[[egress.allow]]\nhosts = [\"echo.msb.internal\"]\nprotocol = \"https\"\n[hosts]\n\"echo.msb.internal\" = \"builtin:echo\"\n[limits]\negress_bytes = \"1M\"\n")
	msb("run", "--vm", "qemu", "-q", "--trust", "--policy", policy, "--disk", "1G", "--name", "c", "-d", "--restart", "always", "--", "sh", "-c", "echo up; exec sleep 1000").want(t, 0, "c\n")
	defer func() { _ = command(t, home, "rm", "--force", "c").Run() }()
	used := func() int64 {
		t.Helper()
		var all []struct {
			Gateway struct {
				EgressBytes int64 `json:"egress_bytes"`
			} `json:"gateway"`
		}
		got := msb("stats", "--no-stream", "--json", "c")
		if err := json.Unmarshal([]byte(got.out), &all); err != nil || len(all) != 1 {
			t.Fatalf("stats: %+v", got)
		}
		return all[0].Gateway.EgressBytes
	}
	msb("exec", "c", "--", "sh", "-c", "wget -qO /dev/null https://echo.msb.internal/ && echo kept > /kept && sync").want(t, 0, "")
	before := used()
	if before == 0 {
		t.Fatal("the guest sent nothing")
	}
	_ = msb("exec", "c", "--", "reboot", "-f") // which ends under it
	eventually(t, "the command runs again", func() bool { return msb("logs", "c").out == "up\nup\n" })
	msb("exec", "c", "--", "cat", "/kept").want(t, 0, "kept\n")
	if now := used(); now < before {
		t.Errorf("%d bytes count against egress_bytes, before it were %d", now, before)
	}
	var run struct{ VMM struct{ PID int } }
	b, err := os.ReadFile(filepath.Join(dir, "sandboxes", "c", "run.json"))
	if err != nil || json.Unmarshal(b, &run) != nil {
		t.Fatalf("%s, %v", b, err)
	}
	if err := syscall.Kill(run.VMM.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command runs again", func() bool { return msb("logs", "c").out == "up\nup\nup\n" })
	for event, lines := range map[string]int{"start": 3, "restart": 2, "stop": 2} {
		if got := msb("events", "--filter", "event="+event, "c").out; strings.Count(got, "\n") != lines {
			t.Errorf("%d lines of %s wanted: %s", lines, event, got)
		}
	}
	msb("kill", "c").want(t, 0, "c\n")
	msb("wait", "c").want(t, 0, "137\n")
	msb("exec", "c", "--", "true").want(t, 0, "")
	msb("stop", "c").want(t, 0, "c\n")
}
