package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// TestFullDisksAreToldApart: the sandbox's own, one of a shared directory, and this machine's at a start.
func TestFullDisksAreToldApart(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	p := serve(t, func(o *Options) {
		o.Tools, o.Disk = []string{"files"}, 200<<20
		o.Directories = []sandbox.Directory{{Host: shared, Guest: "/shared", Writable: true}}
	})
	p.says(t, false, "sandbox_create", m{"name": "web"})
	full := func(path string) error {
		return sandbox.Fail(&fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC})
	}
	for _, c := range []struct {
		runner noticeRunner
		tool   string
		args   m
		want   string
	}{
		{noticeRunner{then: full("/a")}, "fs_write", m{"files": []m{{"path": "/a", "content": "x"}}}, "Next: the disk of sandbox web (200 MB) is full: delete files in it"},
		{noticeRunner{then: full("/a")}, "fs_upload", m{"from": shared, "to": "/a"}, "Next: the disk of sandbox web (200 MB) is full"},
		{noticeRunner{then: errors.Join(sandbox.ErrJobFiles, syscall.ENOSPC)}, "job", m{"action": "start", "command": "x"}, "Next: the disk of sandbox web (200 MB) is full"},
		{noticeRunner{then: full("/shared/a")}, "fs_append", m{"path": "/shared/a", "content": "x"}, "the disk with the shared directory is full"},
		{noticeRunner{atStart: full("/home/u/.msb")}, "fs_append", m{"path": "/a", "content": "x"}, "Next: remove sandboxes with sandbox_stop"},
	} {
		p.runner = c.runner
		c.args["sandbox"] = "web"
		if text := p.says(t, true, c.tool, c.args, c.want); strings.Contains(text, "remove sandboxes") != (c.runner.atStart != nil) {
			t.Errorf("%s: %s", c.tool, text)
		}
	}
	for path, hidden := range map[string]bool{"/shared/.env": true, "/shared2/.env": false} {
		for _, cause := range []error{syscall.ENOENT, syscall.EACCES} {
			p.opts.Hide = []string{".env"}
			p.runner = noticeRunner{then: sandbox.Fail(&fs.PathError{Op: "open", Path: path, Err: cause})}
			if text := p.says(t, true, "fs_read", m{"sandbox": "web", "path": path}, "[end "); strings.Contains(text, "who hides files in it") != hidden {
				t.Errorf("%s: %s", path, text)
			}
		}
	}
}

// TestJobsThatDidNotStartSaySo as programs of sandbox_exec do.
func TestJobsThatDidNotStartSaySo(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.runner = noticeRunner{then: sandbox.Fail(&sandbox.NotStartedError{Status: sandbox.ExitStatus{Code: 127, StartError: agentclient.NotFound, Message: "nosuch: not found"}})}
	for _, c := range []struct{ argv, want string }{
		{"nosuch", "not started (exit code 127); check_installed says which programs there are\n[untrusted"},
		{"ls -l", "give each argument an element of its own"},
	} {
		p.says(t, true, "job", m{"action": "start", "argv": []string{c.argv}}, c.want)
	}
}

func TestLostJobsHaveNoExitCode(t *testing.T) {
	t.Parallel()
	for state, want := range map[sandbox.JobState]string{
		sandbox.JobLost:    "job web is lost: the sandbox ended under it, so that it has no exit code",
		sandbox.JobDamaged: "job web: damaged",
		sandbox.JobExited:  "job web: exited, exit code 0",
		sandbox.JobRunning: "job web: running",
	} {
		if got := jobLine(&sandbox.JobStatus{Name: "web", State: state}); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
	p := serve(t, nil)
	text, err := p.listJobs([]sandbox.JobStatus{{Name: "web", State: sandbox.JobLost, Reason: "x"}})
	if err != nil || strings.Contains(text, "exit_code") {
		t.Errorf("%s, %v", text, err)
	}
}

// TestLifetimesThatRanOutAreExplained, by the time or by how the sandbox ended. The twin has time left.
func TestLifetimesThatRanOutAreExplained(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Lifetime = time.Hour })
	p.says(t, false, "sandbox_create", m{"name": "web"})
	p.runner = noticeRunner{then: fmt.Errorf("%w: x", agentclient.ErrAgentDead)}
	for kind, over := range map[sandbox.Kind]bool{sandbox.KindLifetime: true, sandbox.KindAgent: false} {
		end, err := json.Marshal(sandbox.End{Kind: kind})
		if err == nil {
			err = os.WriteFile(filepath.Join(p.opts.Home.Dir(), "sandboxes", "web", "end.json"), end, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if text := p.says(t, true, "sandbox_exec", m{"sandbox": "web", "command": "x"}, "Next: call again"); strings.Contains(text, "its lifetime of 1h0m0s") != over {
			t.Errorf("%s: %s", kind, text)
		}
	}
	for age, want := range map[time.Duration]string{time.Minute: "", 2 * time.Hour: "1h0m0s"} {
		started := time.Now().Add(-age)
		if got := outlived(&sandbox.Status{Lifetime: time.Hour, Started: &started}); got != want {
			t.Errorf("%s: %q, want %q", age, got, want)
		}
	}
}

// TestUnsetSecretsAreTheOperatorsToSet: a call that needs them names the variable, and nothing starts.
func TestUnsetSecretsAreTheOperatorsToSet(t *testing.T) {
	t.Parallel()
	floor := func(from string) *policies.Policy {
		p := policy(t, "[[egress.allow]]\nhosts = [\"api.example\"]\n[secrets.API_TOKEN]\nfrom = \"env:"+from+"\"\nhosts = [\"api.example\"]\nin = [\"header:Authorization\"]\n")
		return p
	}
	for from, missing := range map[string]bool{"MSB_TEST_NO_SUCH": true, "PATH": false} {
		p := serve(t, nil)
		p.opts.Floor = floor(from) // nobody is asked to approve it
		words := "Next: tell the operator that the variable MSB_TEST_NO_SUCH is not set where msb mcp runs"
		text, failed := p.call(t, "sandbox_run", m{"command": "x"})
		if failed != missing || strings.Contains(text, words) != missing || strings.Contains(text, "untrusted") == missing {
			t.Errorf("%s: %s", from, text)
		}
		if got := unset(p.opts.Floor); (len(got) == 1) != missing {
			t.Errorf("%s: %v", from, got)
		}
	}
}
