package mcp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// forTheShell is advice for whoever sits at the host's command line.
var forTheShell = regexp.MustCompile("`msb |\\bmsb (start|stop|rm|ls|run|exec|job|image|policy|logs)\\b|(^|\\s)--?[a-z][a-z-]*\\b|unusable sandbox configuration")

// TestErrorsAdviseTheToolsAlone: each tool's failing calls, and the errors that only a machine gives.
func TestErrorsAdviseTheToolsAlone(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Tools = []string{AllTools} })
	check := func(what, text string) {
		t.Helper()
		if found := forTheShell.FindString(text); found != "" {
			t.Errorf("%s: %q in: %s", what, found, text)
		}
	}
	if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: "users"}); err != nil {
		t.Fatal(err)
	}
	p.says(t, false, "sandbox_create", m{"name": "mine"})
	for _, tool := range append(p.tools(), p.moreTools()...) {
		s := tool.schema()
		given, _ := sampleOf(s).(map[string]any)
		calls := []any{m{"no_such": 1}, m{}}
		for _, name := range []string{"nosuch", "users"} {
			args := m{}
			for k, v := range given {
				args[k] = v
			}
			if s.Properties["sandbox"] != nil {
				args["sandbox"] = name
			}
			if s.Properties["name"] != nil {
				args["name"] = name
			}
			calls = append(calls, args)
		}
		for _, args := range calls {
			if text, failed := p.call(t, tool.name, args); failed {
				check(tool.name, text)
			}
		}
	}
	for _, c := range []struct {
		tool string
		args m
		want string
	}{
		{"sandbox_create", m{"name": "mine"}, "choose another name"},
		{"sandbox_create", m{"name": "x", "memory_mb": 1}, "memory_mb 1: give it 96 to 2048"},
		{"sandbox_create", m{"name": "x", "image": "python:3.12"}, "take one of these: builtin"},
		{"sandbox_run", m{"command": "true", "cpus": 9}, "1 to 2"},
		{"sandbox_create", m{"name": "x", "allow": []string{"http://x"}}, "it is a URL"},
		{"network", m{"action": "explain", "to": "example.com"}, "wrong arguments: to \"example.com\": there is no port"},
		{"network", m{"action": "explain", "to": "https://example.com/a"}, "its path as path"},
		{"network", m{"action": "explain", "to": "example.com:443", "path": "a"}, "path \"a\": give one that begins with /"},
		{"job", m{"action": "logs", "sandbox": "mine", "job": "none"}, "the action list shows the jobs"},
		{"job", m{"action": "remove", "sandbox": "mine", "job": "none"}, "no such job"},
		{"sandbox_env", m{"sandbox": "mine", "unset": []string{"A=b"}}, "NAME"},
	} {
		check(c.tool, p.says(t, true, c.tool, c.args, c.want))
	}
	p.says(t, false, "sandbox_list", nil, `"images":{"cached":["builtin`)
	for want, err := range map[string]error{
		"stdin: true":          fmt.Errorf("%w: sh was started without -i", sandbox.ErrJobInput),
		"the action remove":    fmt.Errorf("%w: the sandbox has 64; `msb job rm NAME JOB` removes one that has ended", sandbox.ErrJobLimit),
		"once it has ended":    fmt.Errorf("%w: rd; `msb job rm NAME rd` removes it once it has ended", sandbox.ErrJobExists),
		"the action kill":      fmt.Errorf("%w: rd; `msb job kill default rd` first, or remove it with --force", sandbox.ErrJobRunning),
		"any other call":       fmt.Errorf("%w: web; `msb start web` starts it", sandbox.ErrNotRunning),
		"a part of the path":   sandbox.Fail(&fs.PathError{Op: "open", Path: "/etc/passwd/x", Err: syscall.ENOTDIR}),
		"be approved again":    sandbox.Fail(&sandbox.GrantsError{File: "floor.toml"}),
		"the call was":         context.Canceled,
		"call again":           sandbox.Fail(agentclient.ErrAgentDead),
		"did not answer":       errors.New("the supervisor of x did not answer within 5s; `msb stop x` ends it"),
		"no such sandbox: web": fmt.Errorf("%w: web; `msb ls` lists those there are", sandbox.ErrNoSandbox),
	} {
		text := sentence(err)
		check(want, text)
		if !strings.Contains(text, want) || strings.Contains(text, "image") {
			t.Errorf("%v gives %q, want %q", err, text, want)
		}
	}
}
