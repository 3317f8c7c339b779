package mcp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestI13_HistoryOutlivesServers: what was done with a sandbox is known to the next server, of whatever version, also once
// the sandbox has stopped idle, which the next call starts again. It goes with the sandbox.
func TestI13_HistoryOutlivesServers(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	change := func(o *Options) { o.Home, o.Tools, o.IdleStop = home, []string{AllTools}, DefaultIdleStop }
	first := serve(t, change)
	first.says(t, false, "sandbox_create", m{"name": "web"})
	first.says(t, false, "sandbox_exec", m{"sandbox": "web", "command": "make all"})
	st, err := home.Inspect("web")
	if err != nil || st.IdleStop != DefaultIdleStop {
		t.Fatalf("%+v, %v", st, err)
	}
	if err := first.runner.stop(t.Context(), st); err != nil { // as its supervisor does after that time (TestOnlyTheUnusedStopsIdle)
		t.Fatal(err)
	}
	_ = first.client.Close()

	file := filepath.Join(st.Dir, "calls.jsonl")
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil { // a later version's, one that was cut short, and what is none
		_, err = f.WriteString("\n" + `{"time":"2030-01-02T03:04:05Z","tool":"later","new":{"a":1}}` + "\n" + `{"tool":"cut` + "\n[]\n\x00")
		_ = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	next := serve(t, change)
	next.says(t, false, "sandbox_exec", m{"sandbox": "web", "command": "make again"})
	if _, ok := next.fake.running["web"]; !ok {
		t.Error("the next call didn't start it")
	}
	text := next.says(t, false, "sandbox_history", m{"sandbox": "web"}, `"tool":"sandbox_create"`, `"what":"make all"`, `"tool":"later"`, `"what":"make again"`)
	if strings.Contains(text, "cut") || strings.Count(text, `"tool"`) != 4 {
		t.Errorf("got %s", text)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	next.says(t, false, "sandbox_stop", m{"sandbox": "web", "remove": true})
	next.says(t, false, "sandbox_create", m{"name": "web"})
	if text := next.says(t, false, "sandbox_history", m{"sandbox": "web"}); strings.Contains(text, "make") {
		t.Errorf("a new sandbox has the history of one before: %s", text)
	}
}

// TestI8_HistoryHoldsNoSecrets: what looks like one in a command isn't written down, and content, input and variables never
// are. The twin is what stays.
func TestI8_HistoryHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Tools = []string{AllTools} })
	const value = "s3cr3tValue123"
	for _, command := range []string{
		"API_TOKEN=" + value + " make", "export AWS_SECRET_ACCESS_KEY='" + value + "'", "curl -H 'Authorization: Bearer " + value + "' x", `curl -u "x" --password=` + value,
		"git clone https://me:" + value + "@git.example/a", "login --token " + value, "echo ghp_" + value, "echo sk-" + value, `echo '{"api_key": "` + value + `"}'`, "password: " + value,
	} {
		p.says(t, false, "sandbox_exec", m{"command": command})
	}
	p.says(t, false, "sandbox_exec", m{"command": "cat", "stdin": value, "env": m{"A": value}})
	p.says(t, false, "fs_write", m{"files": []m{{"path": "/a", "content": value}}})
	p.says(t, true, "git_clone", m{"repo": "https://git.example/a", "path": "/a", "token": value})
	p.says(t, false, "sandbox_exec", m{"command": "make tokens passwords=no"})
	text := p.says(t, false, "sandbox_history", nil, "make", `"what":"cat"`, `"what":"/a"`, "git.example/a", "make tokens")
	file, err := os.ReadFile(filepath.Join(p.opts.Home.Dir(), "sandboxes", "default", "calls.jsonl"))
	if err != nil || strings.Contains(text+string(file), value) {
		t.Errorf("%v: %s\n%s", err, text, file)
	}
}

// TestI15_HistoryShowsOnlyOwnSandboxes: calls to a sandbox of an older version of the policy aren't shown. Calls that
// can't be written down are known to this server alone.
func TestI15_HistoryShowsOnlyOwnSandboxes(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Tools = []string{AllTools} })
	for name, label := range map[string]string{"older": p.family + strings.Repeat("0", 32), "mine": p.label} {
		if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: name, Label: label}); err != nil {
			t.Fatal(err)
		}
		if err := sandbox.AddCall(p.opts.Home, name, []byte(`{"tool":"x","what":"made before"}`)); err != nil {
			t.Fatal(err)
		}
	}
	p.says(t, false, "sandbox_history", m{"sandbox": "mine"}, "made before")
	if text, _ := p.call(t, "sandbox_history", m{"sandbox": "older"}); strings.Contains(text, "made before") {
		t.Errorf("an older version's: %s", text)
	}
	file := filepath.Join(p.opts.Home.Dir(), "sandboxes", "mine", "calls.jsonl")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	p.says(t, false, "sandbox_exec", m{"sandbox": "mine", "command": "make all"})
	p.says(t, false, "sandbox_history", m{"sandbox": "mine"}, `"what":"make all"`)
}

// TestUsedGrantsAreShown in the list of requests.
func TestUsedGrantsAreShown(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Floor = policy(t, "[agent]\nmay_request = [\"*.example\"]\n") })
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	p.says(t, false, "network", m{"action": "request", "to": "a.example", "why": "x"})
	r := p.newest(t)
	if err := p.opts.Home.Requests().Answer(t.Context(), defaultName, sandbox.RequestAnswer{ID: r.ID, Approve: true, Lifetime: "once"}); err != nil {
		t.Fatal(err)
	}
	p.says(t, false, "network", m{"action": "answer"}, `"state":"approved"`)
	if err := os.Remove(filepath.Join(p.opts.Home.Dir(), "sandboxes", defaultName, "once-"+r.ID)); err != nil { // as its first connection does
		t.Fatal(err)
	}
	p.says(t, false, "network", m{"action": "answer"}, `"state":"used"`)
}

func TestI11_URIsAreBounded(t *testing.T) {
	t.Parallel()
	uri := resourceSandboxes + "/a/files/"
	uri += strings.Repeat("x", maxURI-len(uri))
	if _, ok := parseResource(uri); !ok {
		t.Error("one of the longest is refused")
	}
	if _, ok := parseResource(uri + "x"); ok {
		t.Error("a longer one is taken")
	}
}
