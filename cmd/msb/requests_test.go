package main

import (
	"encoding/json"
	"os"
	osuser "os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// requesting is a state directory with the sandboxes a and b, which stand still, and the ids of a request of each.
func requesting(t *testing.T) (home *sandbox.Home, env []string, ids map[string]string) {
	t.Helper()
	home, err := sandbox.OpenHome(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := policies.Parse("p.toml", []byte("version = 1\n[agent]\nmay_request = [\"*.example\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	ids = map[string]string{}
	for _, name := range []string{"a", "b"} {
		if err := sandbox.Create(t.Context(), sandbox.Config{Home: home.Dir(), Name: name, Policy: p, Floor: p}); err != nil {
			t.Fatal(err)
		}
		r, err := home.Requests().Ask(t.Context(), name, name+".example", 0, []string{"GET"}, "the\x1b build")
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = r.ID
	}
	return home, []string{sandbox.EnvHome + "=" + home.Dir()}, ids
}

// TestI12_RequestsAreListedAndAnswered: what each verb of msb requests does, to the request that it names alone.
func TestI12_RequestsAreListedAndAnswered(t *testing.T) {
	t.Parallel()
	home, env, ids := requesting(t)
	a, b := ids["a"], ids["b"]
	type state = sandbox.RequestState
	const pending, approved, denied, revoked = sandbox.RequestPending, sandbox.RequestApproved, sandbox.RequestDenied, sandbox.RequestRevoked
	for _, c := range []struct {
		args   string
		code   int
		prints string
		a, b   state // behind it
	}{
		{"ls -q", 0, a + "\n" + b + "\n", pending, pending},
		{"ls -q b", 0, b + "\n", pending, pending},
		{"ls -q nosuch", exitSandbox, "nosuch", pending, pending},
		{"ls -q a nosuch", exitSandbox, "nosuch", pending, pending},
		{"approve", exitOther, "msb requests ls", pending, pending},
		{"approve --for ever " + a, exitOther, "once, hour, sandbox", pending, pending},
		{"approve --for= " + a, exitOther, "once, hour, sandbox", pending, pending},
		{"approve aaaaaaaa", exitOther, "msb requests ls", pending, pending},
		{"deny --why " + strings.Repeat("x", 501) + " " + a, exitOther, "at most 500", pending, pending},
		{"approve --for once --why mirror " + b, 0, b + ": b to b.example:443 approved for once\n", pending, approved},
		{"approve --for sandbox " + b, exitOther, "approved already", pending, approved},
		{"ls -q", 0, a + "\n" + b + "\n", pending, approved},
		{"deny aaaaaaaa " + a, exitOther, a + ": a to a.example:443 denied\n", denied, approved},
		{"approve " + a, exitOther, "denied already", denied, approved},
		{"ls -q", 0, b + "\n", denied, approved},
		{"ls -q --all", 0, a + "\n" + b + "\n", denied, approved},
		{"revoke " + b, 0, b + ": b to b.example:443 taken back\n", denied, revoked},
		{"ls -q", 0, "", denied, revoked},
	} {
		got := msb(t, env, append([]string{"requests"}, strings.FieldsFunc(c.args, func(r rune) bool { return r == ' ' })...)...)
		said := got.out
		if c.code != 0 {
			said += got.err
		}
		if got.code != c.code || c.code == 0 && said != c.prints || !strings.Contains(said, c.prints) {
			t.Errorf("%s: %+v; want %d, %q", c.args, got, c.code, c.prints)
		}
		for name, want := range map[string]state{"a": c.a, "b": c.b} {
			if all, err := home.Requests().List(name); err != nil || len(all) != 1 || all[0].State != want {
				t.Errorf("%s: %+v, %v; want %s", c.args, all, err, want)
			}
		}
	}
	all, err := home.Requests().List("b")
	if u, other := osuser.Current(); err != nil || other != nil || all[0].Lifetime != "once" || all[0].By != u.Username+" by msb requests" {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestI12_RequestsShowWhoAsks: the list has each request with its sandbox, the words of agents without what a terminal would
// obey, and leaves out a sandbox that is damaged unless it is named.
func TestI12_RequestsShowWhoAsks(t *testing.T) {
	t.Parallel()
	home, env, ids := requesting(t)
	table := msb(t, env, "requests", "ls")
	if table.code != 0 || strings.Contains(table.out, "\x1b") {
		t.Errorf("%+v", table)
	}
	for name, id := range ids {
		words := []string{id, name, name + ".example:443", "GET", "pending,"}
		if !slices.ContainsFunc(strings.Split(table.out, "\n"), func(line string) bool {
			f := strings.Fields(line)
			return len(f) > len(words) && slices.Equal(f[:len(words)], words)
		}) {
			t.Errorf("%q has no line of %q", table.out, words)
		}
	}
	if err := os.WriteFile(filepath.Join(home.Dir(), "sandboxes", "a", "sandbox.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var rows []listedRequest
	if got := msb(t, env, "requests", "ls", "--json"); got.code != 0 || json.Unmarshal([]byte(got.out), &rows) != nil || len(rows) != 1 || rows[0].Sandbox != "b" || rows[0].ID != ids["b"] {
		t.Errorf("%+v", got)
	}
	if got := msb(t, env, "requests", "ls", "a"); got.code == 0 {
		t.Errorf("%+v", got)
	}
	if got := msb(t, env, "requests", "deny", ids["b"]); got.code != 0 {
		t.Errorf("beside a damaged one: %+v", got)
	}
}

// TestRequestsShowWhatBecameOfThem in each state, and how long that lasts.
func TestRequestsShowWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	until := now.Add(30 * time.Minute)
	row := func(change func(*sandbox.Request)) listedRequest {
		r := sandbox.Request{ID: "id", Host: "a.example", Port: 443, State: sandbox.RequestApproved, Lifetime: "hour", Why: "x\x1b   \u2003y", Expires: now.Add(5 * time.Minute)}
		change(&r)
		return listedRequest{"web", r}
	}
	all := []listedRequest{
		row(func(r *sandbox.Request) { r.State = sandbox.RequestPending }),
		row(func(r *sandbox.Request) { r.Until = &until }),
		row(func(r *sandbox.Request) { r.Lifetime = "sandbox" }),
		row(func(r *sandbox.Request) { r.Lifetime, r.Used, r.Until = "once", true, &until }),
		row(func(r *sandbox.Request) { r.State = sandbox.RequestDenied; r.Methods = []string{"GET", "POST"} }),
	}
	for i, want := range []string{
		"ID|SANDBOX|HOST|METHODS|STATE|WHY", `id|web|a.example:443|all|pending, 5m left|"x\x1b y"`, `id|web|a.example:443|all|approved hour, 30m left|"x\x1b y"`,
		`id|web|a.example:443|all|approved sandbox|"x\x1b y"`, `id|web|a.example:443|all|used once|"x\x1b y"`, `id|web|a.example:443|GET,POST|denied|"x\x1b y"`,
	} {
		if got := strings.Join(requestRows(all, now)[i], "|"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestI15_AnswersAreKeptWithTheirReasons: an approval is for an hour unless it says otherwise, and both have who and why.
func TestI15_AnswersAreKeptWithTheirReasons(t *testing.T) {
	t.Parallel()
	home, env, ids := requesting(t)
	before := time.Now()
	for _, args := range [][]string{{"approve", "--why", "it builds", ids["a"]}, {"deny", "--why", "use the mirror", ids["b"]}} {
		if got := msb(t, env, append([]string{"requests"}, args...)...); got.code != 0 {
			t.Errorf("%q: %+v", args, got)
		}
	}
	a, errA := home.Requests().List("a")
	b, errB := home.Requests().List("b")
	if errA != nil || errB != nil || len(a) != 1 || len(b) != 1 {
		t.Fatalf("%v, %v: %+v, %+v", errA, errB, a, b)
	}
	if r := a[0]; r.State != sandbox.RequestApproved || r.Lifetime != "hour" || r.Reason != "it builds" || r.Until == nil || r.Until.Before(before.Add(time.Hour-time.Second)) || r.Until.After(time.Now().Add(time.Hour)) {
		t.Errorf("%+v", r)
	}
	if r := b[0]; r.State != sandbox.RequestDenied || r.Lifetime != "" || r.Reason != "use the mirror" || r.Until != nil || !strings.HasSuffix(r.By, " by msb requests") {
		t.Errorf("%+v", r)
	}
	done := msb(t, env, "__completeNoDesc", "requests", "deny", "")
	if !strings.Contains(done.out, ids["a"]) || strings.Contains(done.out, ids["b"]) {
		t.Errorf("completed: %+v", done)
	}
	if done := msb(t, env, "__completeNoDesc", "requests", "deny", ids["a"], ""); strings.Contains(done.out, ids["a"]) {
		t.Errorf("completed again: %+v", done)
	}
}
