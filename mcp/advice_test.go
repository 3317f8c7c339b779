package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/secretproxy/secretstore"
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
			if text := p.says(t, true, "fs_read", m{"sandbox": "web", "path": path}, "[end "); strings.Contains(text, "or the operator hides it") != hidden {
				t.Errorf("%s: %s", path, text)
			}
		}
	}
}

// TestUnstartedJobsSaySo as programs of sandbox_exec do.
func TestUnstartedJobsSaySo(t *testing.T) {
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
		sandbox.JobKilled:  "job web: killed, exit code 0",
		sandbox.JobRunning: "job web: running",
	} {
		if got := jobLine(&sandbox.JobStatus{Name: "web", State: state}); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
	p := serve(t, nil)
	text, err := p.jobs.listJobs([]sandbox.JobStatus{{Name: "web", State: sandbox.JobLost, Reason: "x"}})
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

// TestOperatorsSetUnsetSecrets: a call that needs them names the variable, and nothing starts.
func TestOperatorsSetUnsetSecrets(t *testing.T) {
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

// TestI8_UnusableSecretsAreNamed, and neither their values nor where those are. The twin is the same text from a guest, whose
// words stand between marks.
func TestI8_UnusableSecretsAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	p := serve(t, nil)
	for value, want := range map[string]string{
		"hunter2":                   "secret API_TOKEN can't be used: its value is 7 bytes long; below 8 it would turn up by chance in ordinary answers: use a longer value\nNext: tell the operator",
		"":                          "secret API_TOKEN can't be used: its source gave nothing\nNext: ",
		"hunter22 ":                 "its value starts or ends with white space",
		"hunter2\x01hunter2":        "its value holds a line break or another control character",
		strings.Repeat("long", 9e3): "its value is longer than 8192 bytes",
		"none":                      "secret API_TOKEN can't be used: its source can't be read\n",
	} {
		if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		from := policies.Source{Kind: policies.FromFile, Value: file}
		if value == "none" {
			from.Value += "s"
		}
		_, err := secretstore.Open(t.Context(), []policies.Secret{{Name: "API_TOKEN", From: from, In: []policies.Place{{Kind: policies.InBasic}}}}, time.Now)
		p.fake.startErr = sandbox.Fail(fmt.Errorf("%w: %w", sandbox.ErrSecretValue, err))
		text := p.says(t, true, "sandbox_exec", m{"command": "true"}, want)
		if strings.Contains(text, "hunter2") || strings.Contains(text, dir) || strings.Contains(text, "untrusted") {
			t.Errorf("%.20q: %s", value, text)
		}
		p.fake.startErr = errors.New(err.Error())
		if text := p.says(t, true, "sandbox_exec", m{"command": "true"}); strings.Contains(outside(t, text), "API_TOKEN") {
			t.Errorf("the twin: %s", text)
		}
	}
	if text := sentence(unusable(sandbox.Fail(sandbox.ErrSecretValue))); !strings.HasPrefix(text, "a secret of the policy can't be used: ") {
		t.Error(text)
	}
}

// TestListShowsWhatAnAgentHas: secrets by their variables, hosts and places, never by their sources; what is hidden; and the
// image that is always there.
func TestListShowsWhatAnAgentHas(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) {
		o.Directories, o.Hide, o.HideCredentials = []sandbox.Directory{{Host: t.TempDir(), Guest: "/work"}}, []string{"*.kdbx"}, true
	})
	if err := os.RemoveAll(filepath.Join(p.opts.Home.Images(), "refs")); err != nil { // as before the first use
		t.Fatal(err)
	}
	if text := p.says(t, false, "sandbox_list", nil, `"hidden":["*.kdbx","what looks like credentials`, `"cached":["builtin"],`, `"builtin":"busybox alone`); strings.Contains(text, "secrets") {
		t.Errorf("without secrets: %s", text)
	}
	if text := p.instructions(); strings.Contains(text, "placeholders") {
		t.Error(text)
	}
	p.opts.Floor = policy(t, "[[egress.allow]]\nhosts = [\"api.example\"]\n[secrets.API_TOKEN]\nfrom = \"env:WHERE_IT_IS\"\nhosts = [\"api.example\"]\nin = [\"header:Authorization\", \"body\"]\n")
	if text := p.says(t, false, "sandbox_list", nil, `"secrets":[{"variable":"API_TOKEN","hosts":["api.example"],"in":["header:Authorization","body"]}]`); strings.Contains(text, "WHERE_IT_IS") {
		t.Error(text)
	}
	if text := p.instructions(); !strings.Contains(text, "secrets are in the variables API_TOKEN as placeholders") || strings.Contains(text, "WHERE_IT_IS") {
		t.Error(text)
	}
}

// TestI15_LabelsDependOnReachAlone: bounds of [agent] that change leave sandboxes usable, and those that give more don't.
func TestI15_LabelsDependOnReachAlone(t *testing.T) {
	t.Parallel()
	const rules = "[[egress.allow]]\nhosts = [\"api.example\"]\n[secrets.TOKEN]\nfrom = \"env:HOME\"\nhosts = [\"api.example\"]\nin = [\"header:Authorization\"]\n"
	home := newHome(t)
	label := func(text string) string {
		p := policy(t, text)
		o := Options{Home: home, Floor: p}
		if p.Agent != nil {
			if err := o.agent(p.Agent); err != nil {
				t.Fatal(err)
			}
		}
		return o.label()
	}
	dir := "directories = [\"" + t.TempDir() + ":/work\"]\n"
	first := label(rules + "[agent]\nmemory = \"1G\"\n")
	for text, same := range map[string]bool{
		rules: true,
		rules + "[agent]\nsandboxes = 2\ncpus = 1\nmemory = \"2G\"\ndisk = \"1G\"\nlifetime = \"1h\"\nidle_stop = \"1h\"\ntools = [\"files\"]\nimages = [\"a:1\"]\nsecrets = [\"TOKEN\"]\n": true,
		rules + "[agent]\nsecrets = []\n":               false,
		rules + "[agent]\n" + dir:                       false,
		strings.Replace(rules, "[\"api", "[\"*.api", 2): false,
	} {
		if got := label(text); (got == first) != same {
			t.Errorf("the same label: %v, want %v:\n%s", got == first, same, text)
		}
	}
	shared := func(change func(*Options)) string {
		o := Options{Home: home, Floor: policies.Default(), Directories: []sandbox.Directory{{Host: "/a", Guest: "/work"}}, Hide: []string{"x"}}
		change(&o)
		return o.label()
	}
	first = shared(func(*Options) {})
	for what, change := range map[string]func(*Options){
		"host": func(o *Options) { o.Directories[0].Host = "/b" }, "guest": func(o *Options) { o.Directories[0].Guest = "/b" },
		"mode": func(o *Options) { o.Directories[0].Writable = true }, "copy": func(o *Options) { o.Directories[0].CopyOnWrite = true },
		"hide": func(o *Options) { o.Hide = nil }, "credentials": func(o *Options) { o.HideCredentials = true },
		"file": func(o *Options) { o.Floor.Path = "/other" }, "none": func(o *Options) { o.Directories = nil },
	} {
		if shared(change) == first {
			t.Errorf("%s: the same label", what)
		}
	}
}

func TestPort53IsTheResolvers(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	for to, resolver := range map[string]bool{"192.0.2.1:53/udp": true, "192.0.2.1:54/udp": false} {
		if text := p.says(t, false, "network", m{"action": "explain", "to": to}); (text == resolverAnswers) != resolver {
			t.Errorf("%s: %s", to, text)
		}
	}
	p.says(t, false, "network", m{"action": "explain", "to": "time.example:123/udp"}, `"steps":["resolve, name: refused`)
}

func TestLanguagesHaveOtherNames(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	for name, want := range map[string]string{"javascript": "node|/tmp", "js": "node|/tmp", "py": "python3|/tmp", "shell": "/bin/sh|/tmp"} {
		p.says(t, false, "sandbox_run_code", m{"steps": []m{{"language": name, "code": "x"}}}, "("+name+")", want)
	}
}

// jobText is a job with this output.
type jobText string

func (j jobText) Status() (sandbox.JobStatus, error) {
	return sandbox.JobStatus{Name: "web", State: sandbox.JobRunning}, nil
}
func (j jobText) OutputSize() (int64, error) { return int64(len(j)), nil }
func (j jobText) Output(from int64, most int) (sandbox.JobOutput, error) {
	part := []byte(j[from:min(int64(len(j)), from+int64(most))])
	return sandbox.JobOutput{Data: part, Next: from + int64(len(part))}, nil
}

// TestLogsCountFromEitherEnd: a cursor below 0 counts from the end, and may cut a character; one beyond it is an error.
func TestLogsCountFromEitherEnd(t *testing.T) {
	t.Parallel()
	const output = "one\n\u00e9two\n"
	for cursor, want := range map[int64]string{0: "one\n\u00e9two\n", 6: "two\n", -4: "two\n", -5: "two\n", -6: "\u00e9two\n", -100: "one\n\u00e9two\n", math.MinInt64: "one\n\u00e9two\n", 10: ""} {
		text, err := jobLogs(jobText(output), cursor)
		_, shown, _ := strings.Cut(text, "bytes]\n")
		shown, _, _ = strings.Cut(shown, "\n[end ")
		if err != nil || shown != want || !strings.HasPrefix(text, "job web: running; next cursor 10 of 10 bytes\n") {
			t.Errorf("%d: %q, %v; want %q", cursor, text, err, want)
		}
	}
	if _, err := jobLogs(jobText(output), 11); !errors.Is(err, errArgs) || !strings.Contains(err.Error(), "cursor 11: the job has written 10 bytes so far") {
		t.Errorf("beyond the end: %v", err)
	}
}

// kindFiles are files without a directory.
type kindFiles struct{ fakeFiles }

func (f kindFiles) ReadDir(context.Context, string) ([]agentclient.FileInfo, error) {
	return nil, &fs.PathError{Op: "readdir", Path: "/file", Err: syscall.ENOTDIR}
}

type kindMachine struct {
	fakeMachine
	files kindFiles
}

func (m *kindMachine) Files() files { return m.files }

type kindRunner struct {
	*fakeRunner
	m *kindMachine
}

func (r kindRunner) connect(context.Context, *sandbox.Status) (machine, error) { return r.m, nil }

// TestWrongUsesGetTheRightOne: another tool or another way to write a call.
func TestWrongUsesGetTheRightOne(t *testing.T) {
	t.Parallel()
	shared, readOnly := t.TempDir(), t.TempDir()
	p := serve(t, func(o *Options) {
		o.Tools = []string{AllTools}
		o.Directories = []sandbox.Directory{{Host: shared, Guest: "/shared", Writable: true}, {Host: readOnly, Guest: "/look"}}
	})
	p.says(t, false, "sandbox_create", m{"name": "web"})
	p.says(t, true, "sandbox_create", m{"name": "web"}, "use it as it is, choose another name")
	p.says(t, true, "sandbox_exec", m{"argv": "ls -l"}, "a shell line is for command")
	p.says(t, true, "sandbox_exec", m{"command": "x", "env": m{"A B": "c"}}, "no blanks")
	for _, key := range []string{"[secrets.X]", " [ 'secrets' . X]", "secrets.X.from = 1", "\"secrets\" = 1"} {
		p.says(t, true, "sandbox_run", m{"command": "x", "policy": "version = 1\n" + key}, "a client's policy has no secrets")
	}
	if text := p.says(t, true, "fs_download", m{"from": "/a", "to": filepath.Join(readOnly, "a")}, "shared read-only", shared); strings.Count(text, readOnly) != 1 {
		t.Errorf("a directory that is read-only is offered: %s", text)
	}
	p.fake.exec = func(context.Context, sandbox.ExecOptions) (sandbox.ExitStatus, error) {
		return sandbox.ExitStatus{}, nil
	}
	p.says(t, false, "fs_search", m{"path": "/a", "text": "x"}, "exit code 0\nnothing found")
	p.fake.exec = nil
	if text := p.says(t, false, "fs_search", m{"path": "/a", "text": "x"}); strings.Contains(text, "nothing found") {
		t.Errorf("with a hit: %s", text)
	}
	if got := readPart("/a", 900, 900, 500, false); got != "/a has 500 bytes: there is nothing at offset 900" {
		t.Error(got)
	}
	p.runner = kindRunner{p.fake, &kindMachine{files: kindFiles{fakeFiles{"/file": "x"}}}}
	p.says(t, true, "fs_list", m{"path": "/file"}, "/file is a file: fs_read reads it")
	p.says(t, true, "fs_list", m{"path": "/none"}, "not a directory")
}

// TestKillGivesAnEndedCallsResult, which nobody can ask for again.
func TestKillGivesAnEndedCallsResult(t *testing.T) {
	t.Parallel()
	c := newCalls()
	c.patience = 0
	release := make(chan struct{})
	_, err := c.do(t.Context(), "x", func(context.Context) (string, error) { <-release; return "the result", nil })
	if err != nil {
		t.Fatal(err)
	}
	one, err := c.get("call-1")
	if err != nil {
		t.Fatal(err)
	}
	close(release)
	<-one.done
	if text, err := c.kill("call-1"); text != "the result" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := c.get("call-1"); err == nil {
		t.Error("the call is still there")
	}
}
