package mcp

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestBirdList, each tool by what it does.
func TestBirdList(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	p := withList(t, listBird, func(o *Options) {
		o.Directories = []sandbox.Directory{{Host: shared, Guest: "/shared", Writable: true}}
		o.Floor = policy(t, "[[ingress.allow]]\ncidrs = [\"127.0.0.0/8\"]\n")
	})
	var last sandbox.ExecOptions
	code := 0
	p.fake.exec = func(_ context.Context, o sandbox.ExecOptions) (sandbox.ExitStatus, error) {
		last = o
		_, err := io.WriteString(o.Stdout, "out")
		return sandbox.ExitStatus{Code: code}, err
	}
	ran := func(want ...string) {
		t.Helper()
		if got := strings.Join(last.Argv, "|"); !strings.HasSuffix(got, strings.Join(want, "|")) {
			t.Errorf("ran %s, want %v at its end", got, want)
		}
	}
	p.says(t, false, "exec", m{"command": "ls | wc"}, "exit code 0", "untrusted", "out")
	ran("sh", "/workspace", "ls | wc")
	if last.Timeout.Seconds() != birdTimeout {
		t.Errorf("timeout %s", last.Timeout)
	}
	p.says(t, false, "exec", m{"command": "cat", "workdir": "/srv", "stdin": "in", "timeout": 7, "sandbox": "web"}, "exit code 0")
	ran("sh", "/srv", "cat")
	if in, err := io.ReadAll(last.Stdin); string(in) != "in" || err != nil || last.Timeout.Seconds() != 7 {
		t.Errorf("stdin %q, %v, timeout %s", in, err, last.Timeout)
	}
	if st, err := p.opts.Home.Inspect("web"); err != nil || st.Label != p.label {
		t.Errorf("the sandbox of a name that was not there: %+v, %v", st, err)
	}
	p.says(t, true, "exec", m{"command": "x", "workdir": "srv"}, "absolute path")
	p.says(t, false, "python", m{"code": "print(1)"}, "exit code 0")
	if in, err := io.ReadAll(last.Stdin); string(in) != "print(1)" || err != nil || !strings.Contains(strings.Join(last.Argv, " "), "python3") {
		t.Errorf("%v with %q, %v", last.Argv, in, err)
	}
	p.says(t, false, "write_file", m{"path": "/workspace/a", "content": "text"}, "1 files written")
	p.says(t, false, "read_file", m{"path": "/workspace/a"}, "text")
	p.speaks(t, p.says(t, true, "read_file", m{"path": "/none"}, "/none"))
	p.says(t, false, "batch_write", m{"files": `{"/b":"x","/c":"y"}`}, "2 files written")
	for _, bad := range []string{"", "[]", `{"/b":1}`, "{}", `{"b":"x"}`} {
		p.speaks(t, p.says(t, true, "batch_write", m{"files": bad}, "wrong arguments"))
	}
	p.says(t, false, "install", m{"packages": " git  curl "}, "exit code 0")
	ran("sh", "git", "curl")
	p.says(t, true, "install", m{"packages": "--root=/"}, "a package's name")
	p.says(t, true, "install", m{"packages": " "}, "packages")
	p.says(t, false, "env", nil, "out")
	p.says(t, false, "env", m{"action": "set", "key": "A", "value": "it's $x"}, "exit code 0")
	ran("sh", "A", `export A='it'\''s $x'`)
	p.says(t, false, "env", m{"action": "unset", "key": "A"}, "exit code 0")
	ran("sh", "A", "")
	for _, bad := range []m{{"action": "set", "key": "A=B"}, {"action": "set", "key": "A", "value": "a\nb"}, {"action": "unset"}, {"action": "drop", "key": "A"}, {"action": "set", "key": "A;id"}} {
		p.says(t, true, "env", bad, "wrong arguments")
	}
	p.says(t, false, "bg", m{"command": "sleep 9", "name": "srv", "workdir": "/srv"}, "job srv started in sandbox default; logs shows")
	if jobs := p.fake.running["default"].jobs; len(jobs) != 1 || !strings.HasSuffix(strings.Join(jobs[0].Argv, "|"), "sh|/srv|sleep 9") {
		t.Errorf("jobs: %+v", jobs)
	}
	p.keptJob(t, &sandbox.JobStatus{Name: "srv", State: sandbox.JobExited, Code: 3})
	p.says(t, false, "logs", m{"name": "srv"}, "job srv: exited, exit code 3")
	p.says(t, true, "logs", m{"name": "srv", "tail": -1}, "number of lines")
	p.says(t, true, "logs", m{"name": "none"}, "none")
	p.says(t, false, "kill", m{"name": "srv"}, "srv ended")
	p.speaks(t, p.says(t, true, "kill", m{"name": "srv"}, "no such job"))
	for _, tool := range []string{"status", "list_all"} {
		p.says(t, false, tool, nil, `"name":"default"`, `"name":"web"`, `"max_sandboxes":4`)
	}
	p.says(t, false, "health", nil, `"sandbox":"default"`, `"sandbox":"web"`)
	p.says(t, false, "stats", m{"sandbox": "web"}, `"memory_mb":512`)
	if text := p.says(t, false, "history", m{"sandbox": "web"}, `"tool":"exec","what":"cat"`); strings.Contains(text, "ls | wc") {
		t.Errorf("the history of web has another's: %s", text)
	}
	if text := p.says(t, false, "history", m{"limit": 1}); strings.Count(text, `"tool"`) != 1 {
		t.Errorf("one call of the history: %s", text)
	}
	p.fake.running["default"].files["/shared/f"] = "host"
	p.says(t, false, "upload", m{"local_path": filepath.Join(shared, "f"), "sandbox_path": "/in"}, "copied")
	p.says(t, false, "download", m{"sandbox_path": "/workspace/a", "local_path": filepath.Join(shared, "g")}, "copied")
	for _, tool := range []m{{"local_path": "/etc/passwd"}, {"local_path": filepath.Join(shared, "../x")}} {
		p.says(t, true, "upload", tool, "in none of the directories")
	}
	p.says(t, true, "download", m{"sandbox_path": "/workspace/a", "local_path": "/tmp/x"}, "in none of the directories")
	code = 1
	p.speaks(t, p.says(t, true, "reset", nil, "wipe_workspace: true"))
	code = 0
	p.says(t, false, "reset", m{"wipe_workspace": true}, "default has no files")
	p.says(t, false, "images", nil, `"cached":["builtin"`)
	p.speaks(t, p.says(t, true, "build_image", m{"name": "x", "containerfile": "FROM scratch"}, "not built here", `"cached":["builtin"`))
	p.says(t, false, "expose", m{"port": 8080}, "127.0.0.1:8080 of the operator's machine leads to port 8080")
	p.says(t, false, "expose", m{"port": 80, "sandbox": "web"}, "from its next start on")
	p.says(t, true, "expose", m{"port": 80, "host_port": 22}, "at least 1024")
	p.says(t, true, "expose", m{"port": 70000}, "ports are 1 to 65535")
	p.says(t, false, "network_info", nil, `"published_ports":["8080:8080"]`)
	p.says(t, false, "unexpose", m{"port": 8080}, "8080:8080")
	p.speaks(t, p.says(t, true, "unexpose", m{"port": 8080}, "no sandbox publishes port 8080"))
	p.says(t, false, "destroy", m{"sandbox": "web"}, "web removed")
	p.says(t, true, "destroy", m{"sandbox": ""}, "sandbox is empty")
	p.says(t, true, "spawn", nil, "no budget")
	p.says(t, false, "children", nil, `"children":[]`)
}

// TestBirdSnapshots: a sandbox comes back, and one of a name that there is not is made.
func TestBirdSnapshots(t *testing.T) {
	t.Parallel()
	p := withList(t, listBird, nil)
	p.says(t, false, "exec", m{"command": "true"})
	p.fake.running = map[string]*fakeMachine{} // the state directory has none that runs
	p.says(t, false, "snapshot", m{"snapshot_name": "base"}, "snapshot base has the disk of sandbox default")
	p.speaks(t, p.says(t, true, "snapshot", m{"snapshot_name": "base"}, "choose another name"))
	p.says(t, false, "list_snapshots", nil, `"name":"base","sandbox":"default"`)
	p.says(t, false, "restore", m{"snapshot_name": "base"}, "sandbox default has the disk of snapshot base")
	p.says(t, false, "restore", m{"snapshot_name": "base", "sandbox": "two"}, "sandbox two is a clone")
	p.speaks(t, p.says(t, true, "restore", m{"snapshot_name": "base", "sandbox": "two"}, "another sandbox", "restore into"))
	p.says(t, false, "clone", m{"source": "two", "target": "three"}, "sandbox three is a clone")
	p.speaks(t, p.says(t, true, "clone", m{"source": "two", "target": "three"}, "exists already"))
	p.says(t, false, "clone", m{"source": "two", "target": "four"})
	p.speaks(t, p.says(t, true, "clone", m{"source": "two", "target": "five"}, "too many sandboxes"))
	p.speaks(t, p.says(t, true, "clone", m{"source": "none", "target": "five"}, "no such sandbox"))
	p.says(t, false, "delete_snapshot", m{"snapshot_name": "base"}, "removed")
	p.speaks(t, p.says(t, true, "delete_snapshot", m{"snapshot_name": "base"}, "no such snapshot"))
	p.speaks(t, p.says(t, true, "restore", m{"snapshot_name": "base"}, "no such snapshot"))
}

// TestI15_BirdToolsReachNoOthers: no tool that names a sandbox can use somebody
// else's.
func TestI15_BirdToolsReachNoOthers(t *testing.T) {
	t.Parallel()
	p := withList(t, listBird, nil)
	if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: "operators"}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.opts.Home.Snapshots().Create(t.Context(), "operators", sandbox.SnapshotOptions{Name: "theirs"}); err != nil {
		t.Fatal(err)
	}
	full := m{
		"command": "id", "code": "1", "path": "/etc/passwd", "content": "x", "packages": "git", "files": "{\"/x\":\"y\"}", "action": "set", "key": "A", "value": "b", "name": "operators", "snapshot_name": "mine",
		"repo": "https://a.example/x.git", "port": 8080, "source": "operators", "target": "copy", "parent": "operators", "wipe_workspace": true, "local_dir": "/x", "local_path": "/x", "sandbox_path": "/x", "job_id": "operators.sync-x",
		"containerfile": "x", "sandbox": "operators",
	}
	for _, tool := range p.listed() {
		args := m{}
		for name := range tool.schema().Properties {
			if value, ok := full[name]; ok {
				args[name] = value
			}
		}
		named := args["sandbox"] != nil || args["source"] != nil || args["parent"] != nil || args["job_id"] != nil
		text, failed := p.call(t, tool.name, args)
		if named && !failed && tool.name != "history" || strings.Contains(text, "operators\"") {
			t.Errorf("%s %v: %v, %s", tool.name, args, failed, text)
		}
		p.speaks(t, text)
	}
	p.says(t, false, "list_snapshots", nil, `"snapshots":[]`)
	for _, tool := range []string{"restore", "delete_snapshot"} {
		p.says(t, true, tool, m{"snapshot_name": "theirs"}, "no such snapshot")
	}
	if st, err := p.opts.Home.Inspect("operators"); err != nil || st.Label != "" || len(st.Ports) != 0 {
		t.Errorf("the operator's sandbox is %+v, %v", st, err)
	}
	if !p.opts.Home.Snapshots().Has("theirs") || p.opts.Home.Snapshots().Has("mine") {
		t.Error("snapshots changed")
	}
}

// TestI15_GitUsesPasswordsAlone: git_clone uses no secret that the policy doesn't allow in basic authentication. The twins are
// secrets that it allows there.
func TestI15_GitUsesPasswordsAlone(t *testing.T) {
	t.Parallel()
	value := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(value, []byte("the value"), 0o600); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		`"basic"`: "KEY", `"header:Authorization", "basic"`: "KEY", `"header:Authorization"`: "", `"query:key"`: "", `"body"`: "",
	} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			p := withList(t, listBird, func(o *Options) {
				o.Floor = policy(t, "[[egress.allow]]\nhosts = [\"git.example\"]\nprotocol = \"https\"\n[secrets.KEY]\nfrom = \"file:"+value+"\"\nhosts = [\"git.example\"]\nin = ["+in+"]\n")
			})
			for host, want := range map[string]string{"git.example": want, "other.example": ""} {
				if got := (gitTools{p.server}).gitSecret(host); got != want {
					t.Errorf("for %s: %q, want %q", host, got, want)
				}
			}
		})
	}
}

// TestI15_TokensAreNoArguments, in whatever way: each answer says how a secret is used, and none repeats the token.
func TestI15_TokensAreNoArguments(t *testing.T) {
	t.Parallel()
	value := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(value, []byte("the value"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := withList(t, listBird, func(o *Options) {
		o.Floor = policy(t, "[[egress.allow]]\nhosts = [\"git.example\"]\nprotocol = \"https\"\n[secrets.GIT_TOKEN]\nfrom = \"file:"+value+"\"\nhosts = [\"git.example\"]\nin = [\"basic\"]\n")
	})
	ran := false
	var argv []string
	p.fake.exec = func(_ context.Context, o sandbox.ExecOptions) (sandbox.ExitStatus, error) {
		ran, argv = true, o.Argv
		return sandbox.ExitStatus{}, nil
	}
	for _, c := range []struct {
		args m
		want string
	}{
		{m{"repo": "https://git.example/a/b.git", "token": "ghp_secret"}, "has given one for git.example"},
		{m{"repo": "https://other.example/a/b.git", "token": "ghp_secret"}, "no secret of the operator's policy is for other.example"},
		{m{"repo": "https://me:ghp_secret@git.example/a/b.git"}, "has given one for git.example"},
		{m{"repo": "https://git.example/a/b.git?private_token=ghp_secret"}, "has given one for git.example"},
		{m{"repo": "https://git.example/a/b.git#ghp_secret"}, "has given one for git.example"},
	} {
		if text := p.says(t, true, "git_clone", c.args, "is no argument", `in = ["basic"]`, c.want); strings.Contains(text, "ghp_secret") || strings.Contains(text, "the value") {
			t.Errorf("the answer repeats a credential: %s", text)
		}
	}
	for _, bad := range []m{{"repo": "git@git.example:a/b"}, {"repo": "http://git.example/a"}, {"repo": "file:///etc"}, {"repo": "https://git.example"}, {"repo": "https://git.example/--upload-pack=id"}, {"repo": "https://git.example/a", "branch": "--upload-pack=id"}, {"repo": "https://git.example/a", "path": "x"}} {
		p.says(t, true, "git_clone", bad, "wrong arguments")
	}
	if ran {
		t.Error("a refused clone ran")
	}
	p.says(t, false, "git_clone", m{"repo": "https://git.example/a/b.git", "branch": "main"}, "cloned into /workspace/b")
	if got := strings.Join(argv[3:], "|"); got != "sh|/workspace|GIT_TOKEN|--depth|1|--branch|main|--|https://git.example/a/b.git|b" {
		t.Errorf("ran %s", got)
	}
	p.says(t, false, "git_clone", m{"repo": "https://other.example/a/b", "shallow": false, "path": "/srv"}, "cloned into /srv/b")
	if got := strings.Join(argv[3:], "|"); got != "sh|/srv||--|https://other.example/a/b|b" {
		t.Errorf("ran %s", got)
	}
}

// TestLastLines of a job's output.
func TestLastLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[int64]string{
		"a\nb\nc\n": {0: "a\nb\nc\n", 1: "c\n", 2: "b\nc\n", 3: "a\nb\nc\n", 9: "a\nb\nc\n"},
		"a\nb":      {1: "b", 2: "a\nb"},
		"\n\n":      {1: "\n", 2: "\n\n", 5: "\n\n"},
		"one":       {1: "one", 2: "one"},
	} {
		for n, lines := range want {
			got, err := lastLines(&fakeJob{text: text}, n)
			if _, shown, _ := strings.Cut(got, "bytes]\n"); err != nil || !strings.HasPrefix(shown, lines+"\n[end ") {
				t.Errorf("the last %d lines of %q: %q, %v; want %q", n, text, got, err, lines)
			}
		}
	}
	long, err := lastLines(&fakeJob{text: strings.Repeat("x", 3*outputBudget)}, 2)
	if err != nil || len(long) > outputBudget+1000 {
		t.Errorf("%d bytes, %v", len(long), err)
	}
}

type fakeJob struct{ text string }

func (j *fakeJob) Status() (sandbox.JobStatus, error) { return sandbox.JobStatus{Name: "x"}, nil }
func (j *fakeJob) OutputSize() (int64, error)         { return int64(len(j.text)), nil }
func (j *fakeJob) Output(from int64, most int) (sandbox.JobOutput, error) {
	part := j.text[from:]
	return sandbox.JobOutput{Data: []byte(part[:min(len(part), most)])}, nil
}

// TestOwnToolsets of snapshots, ports, git and copies, by what they do.
func TestOwnToolsets(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	p := serve(t, func(o *Options) {
		o.Tools = []string{"snapshots", "ports", "git", "sync"}
		o.Directories = []sandbox.Directory{{Host: shared, Guest: "/shared"}}
		o.Floor = policy(t, "[[ingress.allow]]\ncidrs = [\"127.0.0.0/8\"]\n")
	})
	p.says(t, true, "port_list", nil, "no such sandbox")
	p.says(t, false, "sync_start", m{"from": filepath.Join(shared, "a"), "to": "/copy"}, "default.sync-")
	if jobs := p.fake.running["default"].jobs; len(jobs) != 1 || strings.Join(jobs[0].Argv[3:], "|") != "sh|/shared/a|/copy" {
		t.Errorf("jobs: %+v", jobs)
	}
	p.says(t, true, "sync_start", m{"from": "/etc", "to": "/copy"}, "in none of the directories")
	p.says(t, true, "sync_start", m{"from": shared, "to": "copy"}, "absolute path")
	for _, bad := range []string{"", "default", "sync-x", "default.x", "default.sync", "default.x-sync-", "default.SYNC-x", "default.sync-../x"} { // jobs of others, too
		p.says(t, true, "sync_stop", m{"sync": bad}, "give what sync_start said")
	}
	p.says(t, true, "sync_stop", m{"sync": ".sync-x"}, "there is no .sync-x")
	p.says(t, true, "sync_stop", m{"sync": "default.sync-none"}, "there is no default.sync-none")
	p.says(t, false, "git_clone", m{"repo": "https://a.example/b", "path": "/srv", "full": true}, "cloned into /srv/b")
	p.says(t, false, "port_publish", m{"port": 80}, "from its next start on")
	p.says(t, false, "port_publish", m{"port": 53, "host_port": 5353, "udp": true}, "127.0.0.1:5353")
	p.says(t, false, "port_list", nil, `"host_port":5353,"port":53,"protocol":"udp"`, `"port":80,"protocol":"tcp"`)
	p.says(t, true, "port_remove", m{"port": 53, "host_port": 5354}, "publishes no such port")
	p.says(t, false, "port_remove", m{"port": 53}, "5353:53/udp")
	p.says(t, false, "snapshot_create", nil, "snapshot default-1 has the disk")
	p.says(t, false, "snapshot_list", nil, `"name":"default-1"`)
	p.says(t, false, "snapshot_restore", m{"snapshot": "default-1"}, "has the disk of snapshot default-1")
	p.says(t, false, "sandbox_clone", m{"to": "a"}, "sandbox a is a clone")
	p.says(t, false, "sandbox_clone", m{"snapshot": "default-1", "to": "b"}, "sandbox b is a clone")
	p.says(t, true, "sandbox_clone", m{"snapshot": "default-1", "sandbox": "a", "to": "c"}, "not both")
	p.says(t, true, "snapshot_restore", m{"snapshot": "default-1", "sandbox": "a"}, "sandbox_clone")
	p.says(t, false, "sandbox_exec", m{"sandbox": "a", "command": "true"})
	p.says(t, false, "snapshot_remove", m{"snapshot": "default-1"}, "removed")
	for i := range maxSnapshots {
		p.says(t, false, "snapshot_create", m{"snapshot": "s" + string(rune('a'+i))})
	}
	p.says(t, true, "snapshot_create", nil, "at most 8 may be")
}

// TestI15_SnapshotsOfAnotherFloor can't be used: a clone of one would have its settings.
func TestI15_SnapshotsOfAnotherFloorAreRefused(t *testing.T) {
	t.Parallel()
	wide := policy(t, "[egress]\ndefault = \"public\"\n")
	p := serve(t, func(o *Options) { o.Floor, o.Tools = wide, []string{"snapshots"} })
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	p.says(t, false, "snapshot_create", m{"snapshot": "wide"})
	p.says(t, false, "sandbox_clone", m{"snapshot": "wide", "to": "twin"}) // under its own floor it is of use
	narrow := serve(t, func(o *Options) { o.Home, o.Tools = p.opts.Home, []string{"snapshots"} })
	narrow.says(t, false, "snapshot_list", nil, `"snapshots":[]`)
	narrow.says(t, true, "sandbox_clone", m{"snapshot": "wide", "to": "loose"}, "no such snapshot")
	narrow.says(t, true, "snapshot_restore", m{"snapshot": "wide"}, "no such sandbox")
	narrow.says(t, true, "snapshot_remove", m{"snapshot": "wide"}, "no such snapshot")
	narrow.says(t, true, "sandbox_clone", m{"sandbox": "twin", "to": "loose"}, "older version of the operator's policy")
	if _, err := p.opts.Home.Inspect("loose"); err == nil {
		t.Error("a sandbox of another floor was made")
	}
}

// TestI15_ImportedSnapshotsAreNotTheAgents, whatever label their archive has.
func TestI15_ImportedSnapshotsAreNotTheAgents(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Tools = []string{"snapshots"} })
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	p.says(t, false, "snapshot_create", m{"snapshot": "own"})
	archive, err := os.Create(filepath.Join(t.TempDir(), "archive"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	err = p.opts.Home.Snapshots().Export(t.Context(), "own", archive)
	if err == nil {
		_, err = archive.Seek(0, io.SeekStart)
	}
	var in *sandbox.Snapshot
	if err == nil {
		in, err = p.opts.Home.Snapshots().Import(t.Context(), archive, "foreign")
	}
	if err != nil || in.Labels[snapshotLabel] != p.label {
		t.Fatalf("%+v, %v: the archive has to carry the label", in, err)
	}
	if text := p.says(t, false, "snapshot_list", nil, `"name":"own"`); strings.Contains(text, "foreign") {
		t.Error(text)
	}
	p.says(t, true, "sandbox_clone", m{"snapshot": "foreign", "to": "x"}, "no such snapshot")
}
