//go:build !vmtest

package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// logged are the lines about access in a sandbox's audit log.
func logged(t *testing.T, h *Home, name string) []audit.Event {
	t.Helper()
	st, err := h.Inspect(name)
	must(t, err)
	text, err := os.ReadFile(st.Audit)
	must(t, err)
	var all []audit.Event
	for line := range bytes.Lines(text) {
		var e audit.Event
		must(t, json.Unmarshal(line, &e))
		if strings.HasPrefix(string(e.Kind), "access.") {
			all = append(all, e)
		}
	}
	return all
}

// allows reports whether a sandbox's policy lets it reach a host.
func allows(t *testing.T, h *Home, name, host string) bool {
	t.Helper()
	p, err := h.Policy(name)
	must(t, err)
	a, err := Explain(p, host+":443", "", "")
	must(t, err)
	return !a.Denied()
}

// TestI15_OnlyAnswersOpenHosts asks for a host, answers, and takes the answer back, of a sandbox that is stopped and of one
// that runs, with a real supervisor and a gateway.
func TestI15_OnlyAnswersOpenHosts(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	do := func(verb string) {
		t.Helper()
		_, err := operation{Verb: verb, Home: h.Dir(), Name: "a", Root: t.TempDir()}.do(t.Context(), h)
		must(t, err)
	}
	do("create")
	for _, runs := range []bool{false, true} {
		if runs {
			do("start")
		}
		before := len(logged(t, h, "a"))
		r, err := h.Requests().Ask(t.Context(), "a", "API.example.com", 0, []string{"GET"}, "for the\x1b[2J test")
		must(t, err)
		if r.Host != "api.example.com" || r.Port != 443 || r.State != RequestPending {
			t.Errorf("asked: %+v", r)
		}
		if allows(t, h, "a", "api.example.com") {
			t.Error("asking opens it")
		}
		name, found, err := h.Requests().Find(r.ID)
		if err != nil || name != "a" || found.Why != r.Why {
			t.Errorf("%s, %+v, %v", name, found, err)
		}
		must(t, h.Requests().Answer(t.Context(), "a", RequestAnswer{ID: r.ID, Approve: true, Lifetime: "sandbox", By: "alice", Reason: "fine"}))
		if !allows(t, h, "a", "api.example.com") || allows(t, h, "a", "www.example.com") {
			t.Error("the answer does not open that host alone")
		}
		if _, err := h.Requests().Ask(t.Context(), "a", "api.example.com", 443, []string{"GET"}, ""); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "allows it already") {
			t.Errorf("asked again: %v", err)
		}
		if err := h.Requests().Answer(t.Context(), "a", RequestAnswer{ID: r.ID, Approve: true, Lifetime: "once", By: "bob"}); err == nil || !strings.Contains(err.Error(), "approved already") {
			t.Errorf("answered again: %v", err)
		}
		must(t, h.Requests().Answer(t.Context(), "a", RequestAnswer{ID: r.ID, By: "bob"}))
		if allows(t, h, "a", "api.example.com") {
			t.Error("what was taken back is open")
		}
		if runs {
			do("stop") // the log of one that runs is behind
		}
		log := logged(t, h, "a")[before:]
		if len(log) != 3 {
			t.Fatalf("%+v", log)
		}
		for i, want := range []audit.Event{
			{Kind: audit.AccessRequest, Message: r.Why},
			{Kind: audit.AccessAnswer, Action: "allow", By: "alice", Message: "for as long as the sandbox is there: fine"},
			{Kind: audit.AccessAnswer, Action: "deny", By: "bob", Message: "revoked"},
		} {
			e := log[i]
			if e.Kind != want.Kind || e.Action != want.Action || e.By != want.By || e.Message != want.Message || e.Sandbox != "a" || e.Host != "api.example.com" || e.Port != 443 || e.Method != "GET" || e.Rule != "request "+r.ID {
				t.Errorf("line %d: %+v, want %+v", i, e, want)
			}
		}
	}
	for what, c := range map[string]struct {
		host string
		port uint16
	}{"an address": {"192.0.2.1", 443}, "a wildcard": {"*.example.com", 443}, "another port": {"api.example.com", 22}} {
		if _, err := h.Requests().Ask(t.Context(), "a", c.host, c.port, nil, ""); !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// What stands in the state is in force at the next start.
	r, err := h.Requests().Ask(t.Context(), "a", "api.example.com", 443, nil, "")
	must(t, err)
	must(t, h.Requests().Answer(t.Context(), "a", RequestAnswer{ID: r.ID, Approve: true, Lifetime: "hour", By: "alice"}))
	do("start")
	if !allows(t, h, "a", "api.example.com") {
		t.Error("a start forgets what was granted")
	}
	do("stop")
	must(t, h.Clone(t.Context(), "a", "b", CloneOptions{}))
	if all, err := h.Requests().List("b"); err != nil || len(all) != 0 || allows(t, h, "b", "api.example.com") {
		t.Errorf("a clone has %+v, %v", all, err)
	}
}

// TestI13_UsedGrantsEndAtNextStart approves a request once while the sandbox is stopped. It is there over starts, until it
// was used in a run that was killed.
func TestI13_UsedGrantsEndAtNextStart(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	do := func(verb string) {
		t.Helper()
		_, err := operation{Verb: verb, Home: h.Dir(), Name: "a", Root: t.TempDir()}.do(t.Context(), h)
		must(t, err)
	}
	do("create")
	r, err := h.Requests().Ask(t.Context(), "a", "api.example.com", 443, nil, "")
	must(t, err)
	must(t, h.Requests().Answer(t.Context(), "a", RequestAnswer{ID: r.ID, Approve: true, Lifetime: "once", By: "alice"}))
	for range 2 {
		do("start")
		if !allows(t, h, "a", "api.example.com") {
			t.Error("it is over and was not used")
		}
		do("stop")
	}
	used := func() bool {
		t.Helper()
		all, err := h.Requests().List("a")
		must(t, err)
		return all[0].Used
	}
	if used() {
		t.Error("it is shown as used")
	}
	must(t, os.Remove(state.OnceFile(namedPath(h, "a"), r.ID))) // as a use does
	if !used() {
		t.Error("a use in a run that was killed is not shown")
	}
	do("start")
	if allows(t, h, "a", "api.example.com") {
		t.Error("it is back after its use")
	}
	do("stop")
	log := logged(t, h, "a")
	if n := len(log); n != 3 || log[2].Kind != audit.AccessEnd {
		t.Errorf("%+v", log)
	}
	again, err := h.Requests().Ask(t.Context(), "a", "api.example.com", 443, nil, "")
	must(t, err)
	must(t, h.Requests().Answer(t.Context(), "a", RequestAnswer{ID: again.ID, Approve: true, Lifetime: "once", By: "alice"}))
	must(t, h.Requests().Answer(t.Context(), "a", RequestAnswer{ID: again.ID, By: "bob"}))
	if _, err := os.Lstat(state.OnceFile(namedPath(h, "a"), again.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was taken back is marked still: %v", err)
	}
	last, err := h.Requests().Ask(t.Context(), "a", "api.example.com", 443, nil, "")
	must(t, err)
	must(t, h.Requests().Answer(t.Context(), "a", RequestAnswer{ID: last.ID, Approve: true, Lifetime: "once", By: "alice"}))
	must(t, h.Remove(t.Context(), "a"))
}

// TestI1_StoppedSandboxesApprovalsNeedTheirLine: where it can't be written, or nobody would read it, nothing opens. The
// twin is an ordinary log, and what closes needs no line.
func TestI1_StoppedSandboxesApprovalsNeedTheirLine(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, Create(t.Context(), Config{Home: h.Dir(), Name: "a", Disk: 64 << 20}))
	logTo := func(path string) {
		t.Helper()
		st, err := loadStored(h, "a")
		must(t, err)
		st.Audit = path
		must(t, state.WriteJSON(namedPath(h, "a"), state.StoredFile, st))
	}
	for path, want := range map[string]string{filepath.Join(t.TempDir(), "none", "audit.jsonl"): "audit log", "/dev/null": "is no file", "": ""} {
		r, err := h.Requests().Ask(t.Context(), "a", "api.example.com", 443, nil, "")
		must(t, err)
		logTo(path)
		err = h.Requests().Answer(t.Context(), "a", RequestAnswer{ID: r.ID, Approve: true, Lifetime: "once", By: "alice"})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", path, err)
		}
		if allows(t, h, "a", "api.example.com") != (want == "") {
			t.Errorf("%q: it opens without a line", path)
		}
		_, now, err := h.Requests().Find(r.ID)
		if must(t, err); want != "" && now.State != RequestPending {
			t.Errorf("%q: it is %s", path, now.State)
		}
		logTo("/dev/null")
		must(t, h.Requests().Answer(t.Context(), "a", RequestAnswer{ID: r.ID, By: "bob"}))
		logTo("")
	}
}

// TestI15_RequestsBeyondDenyRulesAreRefused: nobody is asked for what no answer would open.
func TestI15_RequestsBeyondDenyRulesAreRefused(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	p, err := policies.Parse("p.toml", []byte("version = 1\n[[egress.deny]]\nhosts = [\"*.evil.example\"]\n[agent]\nmay_request = [\"*.example\"]\n"), nil)
	must(t, err)
	must(t, Create(t.Context(), Config{Home: h.Dir(), Name: "a", Disk: 64 << 20, Policy: p, Floor: p}))
	for host, want := range map[string]string{"a.evil.example": "can never match", "api.example.com": "may_request", "b.example": ""} {
		_, err := h.Requests().Ask(t.Context(), "a", host, 443, nil, "")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", host, err, want)
		}
	}
}
