package main

import (
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
)

// TestEventsAreFiltered by docker's names and by msb's own, beside --denied.
func TestEventsAreFiltered(t *testing.T) {
	env, path := loggedSandbox(t, "web")
	logged(t, path,
		audit.Event{Kind: audit.SandboxStart}, deniedFlow("", "10.0.0.1", "tcp", "special_address", 80),
		audit.Event{Kind: audit.ExecDie, Exec: 1, Program: "sh", ExitCode: new(0)},
		audit.Event{Kind: audit.SandboxDie, Job: "main", Program: "evil\x1b[2J", ExitCode: new(3)})
	for _, c := range []struct{ args, want string }{
		{"--filter event=die", "sandbox.die main evil\\x1b[2J exit code 3"},
		{"--filter event=exec_die", "exec.die sh exit code 0"},
		{"--filter event=exec.die --filter event=start", "sandbox.start|exec.die sh exit code 0"},
		{"--filter event=flow.open --denied", "10.0.0.1:80"},
		{"--filter event=create --denied", ""},
		{"--filter event=destroy", ""},
	} {
		got := msb(t, env, append([]string{"events", "web"}, strings.Fields(c.args)...)...)
		lines := strings.Split(strings.TrimSuffix(got.out, "\n"), "\n")
		for i, want := range strings.Split(c.want, "|") {
			if got.code != 0 || len(lines) != strings.Count(c.want, "|")+1 || !strings.Contains(lines[i], want) || want == "" && got.out != "" {
				t.Errorf("%s: %+v, want %s", c.args, got, c.want)
			}
		}
	}
	if got := msb(t, env, "events", "web", "--filter", "event=oom"); !strings.Contains(got.err, "create, destroy, die, ") {
		t.Errorf("%+v", got)
	}
	for _, filter := range []string{"die", "event=", "event=dies", "type=container", "label=a=b"} {
		if got := msb(t, env, "events", "web", "--filter", filter); got.code != exitOther || !strings.Contains(got.err, "event=die") {
			t.Errorf("%s: %+v", filter, got)
		}
	}
}
