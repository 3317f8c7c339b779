//go:build vmtest

package main

import (
	"path/filepath"
	"strings"
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
