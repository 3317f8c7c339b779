//go:build !vmtest

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// callsOf answers programs of the sandbox of that name.
func callsOf(t *testing.T, h *Home, name string) *childCalls {
	t.Helper()
	st, err := loadStored(h, name)
	must(t, err)
	return &childCalls{home: h, parent: name, made: st.Created, stderr: t.Output()}
}

// ask sends one request and returns what came for it.
func (c *childCalls) ask(t *testing.T, request string) (out string, last agentpb.ChildReply) {
	t.Helper()
	var all bytes.Buffer
	c.answer(t.Context(), []byte(request), &all)
	for d := json.NewDecoder(&all); ; {
		var r agentpb.ChildReply
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			return out, last
		} else if err != nil {
			t.Fatal(err)
		}
		out, last = out+string(r.Stdout)+string(r.Stderr), r
	}
}

// made asks for a child and returns its name.
func (c *childCalls) spawned(t *testing.T, request string) string {
	t.Helper()
	_, r := c.ask(t, request)
	if r.Result == nil {
		t.Fatalf("%s: %q", request, r.Error)
	}
	return *r.Result
}

// stopAll ends what runs.
func stopAll(t *testing.T, h *Home) {
	t.Helper()
	t.Cleanup(func() {
		all, err := h.List()
		must(t, err)
		for i := range all {
			if all[i].Running {
				_ = h.Stop(context.Background(), all[i].Name)
			}
		}
	})
}

// TestI15_ProgramsHaveChildren goes through every verb with machines of a test's.
func TestI15_ProgramsHaveChildren(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	stopAll(t, h)
	newParent(t, h, budget(nil), func(c *Config) { c.NoNet, c.Backend = true, "" })
	c := callsOf(t, h, "top")
	name := c.spawned(t, `{"verb":"spawn","cpus":1}`)
	if st, err := h.Inspect(name); err != nil || !st.Running || st.Parent != "top" || st.CPUs != 1 || st.Lifetime != time.Minute {
		t.Errorf("%+v, %v", st, err)
	}
	if out, r := c.ask(t, `{"verb":"exec","name":"`+name+`","argv":["echo","a","b"]}`); out != "a b\n" || r.Exit == nil || *r.Exit != 0 {
		t.Errorf("%q, %+v", out, r)
	}
	if _, r := c.ask(t, `{"verb":"exec","name":"`+name+`","argv":["exit","7"]}`); r.Exit == nil || *r.Exit != 7 {
		t.Errorf("%+v", r)
	}
	var rows []childRow
	if _, r := c.ask(t, `{"verb":"list"}`); r.Result == nil || json.Unmarshal([]byte(*r.Result), &rows) != nil || len(rows) != 1 || rows[0].Name != name || !rows[0].Running {
		t.Errorf("%+v", r)
	}
	if _, r := c.ask(t, `{"verb":"ping"}`); r.Result == nil || !strings.Contains(*r.Result, `"sandbox":"top","children":1,"made":1,"budget":{`) {
		t.Errorf("%+v", r)
	}
	if out, r := c.ask(t, `{"verb":"run","argv":["exit","3"]}`); out != "" || r.Exit == nil || *r.Exit != 3 {
		t.Errorf("%q, %+v", out, r)
	}
	if _, r := c.ask(t, `{"verb":"destroy","name":"`+name+`"}`); r.Result == nil {
		t.Errorf("%+v", r)
	}
	if st, err := h.Children().List("top"); err != nil || len(st.Children) != 0 || st.Made != 2 {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestI1_RequestsOfProgramsAreLogged: the audit log has who was asked for, by which verb, and how it ended, without a
// command's arguments and the host's own words.
func TestI1_RequestsOfProgramsAreLogged(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	stopAll(t, h)
	newParent(t, h, budget(nil), func(c *Config) { c.NoNet, c.Backend = true, "" })
	c := callsOf(t, h, "top")
	logs := func(request string, want audit.Event) (got audit.Event) {
		t.Helper()
		got = c.answer(t.Context(), []byte(request), io.Discard)
		got.Kind, want.Kind = audit.ChildRequest, audit.ChildRequest // as the supervisor
		if want.Child == "made" {
			want.Child = got.Child
			if !strings.HasPrefix(got.Child, "top-") {
				t.Errorf("%s: child %q", request, got.Child)
			}
		}
		if g, w := audit.FormatHuman(got), audit.FormatHuman(want); g != w || strings.Contains(g, h.Dir()) {
			t.Errorf("%s: the log has %q, want %q", request, g, w)
		}
		return got
	}
	code := func(n int) *int { return &n }
	name := logs(`{"verb":"spawn","cpus":1}`, audit.Event{Verb: "spawn", Child: "made"}).Child
	logs(`{"verb":"exec","name":"`+name+`","argv":["exit","7"]}`, audit.Event{Verb: "exec", Child: name, Program: "exit", ExitCode: code(7)})
	logs(`{"verb":"exec","name":"other","argv":["id"]}`, audit.Event{Verb: "exec", Child: "other", Program: "id", Message: errNoChild.Error()})
	logs(`{"verb":"run","argv":["echo","private"]}`, audit.Event{Verb: "run", Child: "made", Program: "echo", ExitCode: code(0)})
	logs(`{"verb":"run","cpus":9,"argv":["echo"]}`, audit.Event{Verb: "run", Program: "echo", Message: "no child can be made: 9 CPUs and 0 MiB are more than the 2 and 512 of its parent"})
	logs(`{"verb":"list"}`, audit.Event{Verb: "list"})
	logs(`{"verb":"ping"}`, audit.Event{Verb: "ping"})
	logs(`{"verb":"leave"}`, audit.Event{Verb: "leave", Message: `there is no verb "leave"`})
	logs(`{`, audit.Event{Message: "the request is no JSON of a request"})
	logs(`{"verb":"destroy","name":"`+name+`"}`, audit.Event{Verb: "destroy", Child: name})
}

// TestI15_HostileRequestsAreRefused, and leave nothing.
func TestI15_HostileRequestsAreRefused(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	newParent(t, h, budget(nil), func(c *Config) { c.Backend = "" })
	newParent(t, h, budget(nil), func(c *Config) { c.Name = "other" })
	theirs, err := h.Children().Make(t.Context(), "other", ChildOptions{})
	must(t, err)
	c := callsOf(t, h, "top")
	long := strings.Repeat("x", agentpb.MaxChildRequest)
	for _, request := range []string{
		"", "{", "null x", "[]", `"spawn"`, "\x00", strings.Repeat("[", 50_000), `{"verb":"spawn"}{"verb":"spawn"}`, `{"verb":"spawn","home":"/"}`,
		`{"verb":"` + long + `"}`, `{"verb":"Spawn "}`, `{"verb":"spawn","name":"mine"}`, `{"verb":"spawn","argv":["sh"]}`, `{"verb":"exec","argv":["sh"]}`,
		`{"verb":"exec","name":"x"}`, `{"verb":"ping","image":"x"}`, `{"verb":"list","no_network":true}`, `{"verb":"destroy"}`, `{"verb":"run"}`,
		`{"verb":"spawn","memory_mib":9223372036854775807}`, `{"verb":"spawn","memory_mib":-1}`, `{"verb":"spawn","cpus":-1}`, `{"verb":"spawn","cpus":1e9}`, `{"verb":"spawn","cpus":3}`,
		`{"verb":"spawn","memory_mib":513}`, `{"verb":"spawn","image":"dir:/etc"}`, `{"verb":"spawn","image":"alpine"}`, `{"verb":"spawn","image":"../../x"}`,
		// What is looser than the parent, or takes something of the host.
		`{"verb":"spawn","policy":""}`, `{"verb":"spawn","policy":"not toml"}`, `{"verb":"spawn","policy":"version = 1\n[agent]\n"}`,
		`{"verb":"spawn","policy":"version = 1\n[sandbox]\nimage = \"x\"\n"}`, `{"verb":"spawn","policy":"version = 1\n[[tls.extra_ca]]\nfile = \"/etc/shadow\"\nhosts = [\"a.example\"]\n"}`,
		`{"verb":"spawn","policy":"version = 1\n[secrets.K]\nfrom = \"file:/etc/shadow\"\nhosts = [\"a.example\"]\n"}`,
		`{"verb":"spawn","policy":"version = 1\n[hosts]\n\"x.example\" = \"127.0.0.1:22\"\n"}`, `{"verb":"spawn","allow":["10.0.0.0/8:22"],"no_network":true}`,
		`{"verb":"spawn","policy":"version = 1\ninclude = [\"/etc/passwd\"]\n"}`,
	} {
		if out, r := c.ask(t, request); r.Error == "" || out != "" || strings.Contains(r.Error, h.Dir()) {
			t.Errorf("%.80q: %q, %+v", request, out, r)
		}
	}
	for _, name := range []string{"other", theirs, "top", "none", "../other", "OTHER", "..", "\n", long[:300]} { // they are all alike
		for _, verb := range []string{`{"verb":"destroy","name":%}`, `{"verb":"exec","name":%,"argv":["sh"]}`} {
			quoted, err := json.Marshal(name)
			must(t, err)
			if _, r := c.ask(t, strings.ReplaceAll(verb, "%", string(quoted))); r.Error != errNoChild.Error() {
				t.Errorf("%s %q: %+v", verb, name, r)
			}
		}
	}
	if all, err := h.List(); err != nil || len(all) != 3 {
		t.Errorf("%d sandboxes, %v", len(all), err)
	}
	if st, err := h.Children().List("top"); err != nil || st.Made != 0 {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestI15_ProgramsPullNothing: a child's image comes from the cache, and no program makes the host ask a registry. The twin
// is a child that may be pulled: nothing listens at the registry's address.
func TestI15_ProgramsPullNothing(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	const ref = "127.0.0.1:1/x:1"
	newParent(t, h, budget(func(b *ChildBudget) { b.Images = []string{ref} }), func(c *Config) { c.Backend = "" })
	c := callsOf(t, h, "top")
	for _, request := range []string{`{"verb":"spawn","image":"` + ref + `"}`, `{"verb":"run","image":"` + ref + `","argv":["id"]}`} {
		if _, r := c.ask(t, request); r.Error != "the image is not in the cache of the host" {
			t.Errorf("%s: %q", request, r.Error)
		}
	}
	if _, err := h.Children().Make(t.Context(), "top", ChildOptions{Image: ref, Pull: image.PullMissing}); err == nil || errors.Is(err, image.ErrNotCached) || !strings.Contains(err.Error(), "registry is unreachable") {
		t.Errorf("with pulling: %v", err)
	}
}

// TestI15_NarrowTakesNothing: each table that takes of the host is refused, also by whoever would not look for it after.
func TestI15_NarrowTakesNothing(t *testing.T) {
	t.Parallel()
	trust := newHome(t).Trust()
	above := parsePolicy(t, "[egress]\ndefault = \"public\"\n")
	for text, refused := range map[string]bool{
		"[agent]\n": true, "[agent]\nmay_request = []\n": true, "[sandbox]\ncpus = 2\n": true, "[[tls.extra_ca]]\nfile = \"/etc/shadow\"\nhosts = [\"a.example\"]\n": true,
		"[[egress.allow]]\nhosts = [\"a.example\"]\n[secrets.K]\nfrom = \"env:K\"\nhosts = [\"a.example\"]\n": true,
		"[[egress.allow]]\nhosts = [\"a.example\"]\n":                                                         false,
	} {
		text = "version = 1\n" + text
		if _, err := trust.Narrow(above, &text, nil); refused != (err != nil && strings.Contains(err.Error(), takesNothing)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestI15_ProgramsCantLoosenPolicies: whatever a program asks for, its child reaches nothing that the parent doesn't. The
// twin is a child that is made without the parent's policy above it.
func TestI15_ProgramsCantLoosenPolicies(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	stopAll(t, h)
	newParent(t, h, budget(func(b *ChildBudget) { b.Count, b.Total, b.CPUs = 10, 10, 20; b.Memory = 8 << 30 }), func(c *Config) { c.Backend = "" })
	c := callsOf(t, h, "top")
	reaches := func(name, host string) bool {
		t.Helper()
		p, err := h.Policy(name)
		must(t, err)
		a, err := Explain(p, host+":443", "", "")
		must(t, err)
		return !a.Denied()
	}
	for request, want := range map[string]string{
		`{"verb":"spawn"}`:                                                          "a b",
		`{"verb":"spawn","no_network":true}`:                                        "",
		`{"verb":"spawn","allow":[]}`:                                               "",
		`{"verb":"spawn","allow":["a.example","c.example","d.example"]}`:            "a",
		`{"verb":"spawn","policy":"version = 1\n[egress]\ndefault = \"public\"\n"}`: "a b",
	} {
		name := c.spawned(t, request)
		for _, host := range []string{"a", "b", "c", "d", "anything"} {
			if got := reaches(name, host+".example"); got != strings.Contains(want, host) {
				t.Errorf("%s: it reaches %s: %v", request, host, got)
			}
		}
		c.ask(t, `{"verb":"destroy","name":"`+name+`"}`)
	}
	name := c.spawned(t, `{"verb":"spawn","policy":"version = 1\n[egress]\ndefault = \"public\"\n"}`)
	st, err := loadStored(h, name)
	must(t, err)
	st.Floor, st.Between = "", nil
	must(t, state.WriteJSON(namedPath(h, name), state.StoredFile, st))
	if !reaches(name, "d.example") {
		t.Error("without what is above it, the child reaches no more: the test shows nothing")
	}
}

// TestI15_ProgramsKeepToTheBudget asks for more than each bound, many at once too. The twin has a larger budget.
func TestI15_ProgramsKeepToTheBudget(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(*ChildBudget)
		want   int
	}{
		"count":      {func(b *ChildBudget) { b.Count = 2 }, 2},
		"total":      {func(b *ChildBudget) { b.Total = 1 }, 1},
		"processors": {func(b *ChildBudget) { b.CPUs = 5 }, 2},
		"memory":     {func(b *ChildBudget) { b.Memory = 1024 << 20 }, 2},
		"its twin":   {func(b *ChildBudget) { b.Count, b.CPUs, b.Memory = 4, 8, 2<<30 }, 4},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			stopAll(t, h)
			newParent(t, h, budget(c.change), func(c *Config) { c.Backend = "" })
			calls := callsOf(t, h, "top")
			var all sync.WaitGroup
			for range 6 {
				all.Go(func() { calls.answer(t.Context(), []byte(`{"verb":"spawn"}`), io.Discard) })
			}
			all.Wait()
			if st, err := h.Children().List("top"); err != nil || len(st.Children) != c.want || st.Made != c.want {
				t.Errorf("%d children, %d made, %v; want %d", len(st.Children), st.Made, err, c.want)
			}
		})
	}
}

// TestI15_KillsGiveNothingBack: a supervisor that is killed while it makes a child leaves no room that was not there. What
// it left is a child as any other, or nothing.
func TestI15_KillsGiveNothingBack(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	stopAll(t, h)
	newParent(t, h, budget(func(b *ChildBudget) { b.Total = 6 }), func(c *Config) { c.Backend = "" })
	self, err := os.Executable()
	must(t, err)
	before := 0
	for range 12 {
		o, err := json.Marshal(operation{Home: h.Dir(), Name: "top", Verb: "child", Key: `{"verb":"spawn"}`})
		must(t, err)
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), callerEnv+"="+string(o))
		must(t, cmd.Start())
		time.AfterFunc(time.Duration(rand.IntN(150))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		st, err := h.Children().List("top")
		must(t, err)
		if len(st.Children) > 3 || st.Made < before || st.Made > 6 || st.Made < len(st.Children) {
			t.Fatalf("%d children, %d made, %d before", len(st.Children), st.Made, before)
		}
		before = st.Made
		if len(st.Children) == 3 {
			for i := range st.Children {
				_, r := callsOf(t, h, "top").ask(t, `{"verb":"destroy","name":"`+st.Children[i].Name+`"}`)
				if r.Result == nil {
					t.Errorf("%+v", r)
				}
			}
		}
	}
}

// TestI15_ProgramsThatGiveUpLeaveNothing: a request whose program has gone makes no child that stays.
func TestI15_ProgramsThatGiveUpLeaveNothing(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	stopAll(t, h)
	newParent(t, h, budget(nil), func(c *Config) { c.NoNet, c.Backend = true, "" })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	callsOf(t, h, "top").answer(ctx, []byte(`{"verb":"spawn"}`), io.Discard)
	if st, err := h.Children().List("top"); err != nil || len(st.Children) != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if left, err := filepath.Glob(filepath.Join(h.Dir(), state.NamedDir, "top-*")); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	callsOf(t, h, "top").answer(endsLast{t.Context()}, []byte(`{"verb":"spawn"}`), io.Discard)
	if st, err := h.Children().List("top"); err != nil || len(st.Children) != 0 || st.Made == 0 {
		t.Errorf("one that gave up when its child ran: %+v, %v", st, err)
	}
}

// endsLast is the context of a program that gives up once its child has started, before it learns of it.
type endsLast struct{ context.Context }

// Err implements context.Context.
func (endsLast) Err() error {
	caller, _, _, _ := runtime.Caller(1)
	if strings.HasSuffix(runtime.FuncForPC(caller).Name(), ".(*childCalls).spawn") {
		return context.Canceled
	}
	return nil
}

// TestI11_ProgramsCantFillTheLog: of a guest's requests that fail, only so many lines come into the supervisor's log, none of
// them long, and none for what the guest learns anyway.
func TestI11_ProgramsCantFillTheLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := &childCalls{stderr: &log}
	for range maxChildLog + 1 {
		c.log(refuse("no such verb"))
		c.log(narrowFault("no policy"))
	}
	if log.Len() != 0 {
		t.Errorf("%q", log.String())
	}
	for range 2 * maxChildLog {
		c.log(errors.New(strings.Repeat("x", 2*maxChildLine)))
	}
	if n := strings.Count(log.String(), "\n"); n != maxChildLog || log.Len() > maxChildLog*(maxChildLine+100) {
		t.Errorf("%d lines of %d bytes", n, log.Len())
	}
}
