package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI15_ShownPoliciesAreUnderTheFloor: the policy that a sandbox starts with allows no more than its floor, wherever it
// comes from. A file that was the floor's copy may have changed since.
func TestI15_ShownPoliciesAreUnderTheFloor(t *testing.T) {
	t.Parallel()
	const floor = "version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n"
	const wide = "version = 1\n[egress]\ndefault = \"public\"\n"
	file := filepath.Join(t.TempDir(), "p.toml")
	must(t, os.WriteFile(file, []byte(wide), 0o600))
	for what, c := range map[string]struct{ policy, file string }{"its own": {wide, ""}, "a file": {floor, file}} {
		h := newHome(t)
		must(t, aNamed(t, h, "web"))
		st, err := loadStored(h, "web")
		must(t, err)
		st.Floor, st.Policy, st.PolicyFile = floor, c.policy, c.file
		must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
		p, err := h.Policy("web")
		must(t, err)
		for host, denied := range map[string]bool{"a.example:443": false, "b.example:443": true} {
			if a, err := Explain(p, host, "", ""); err != nil || a.Denied() != denied {
				t.Errorf("%s, %s: %+v, %v; want denied %t", what, host, a, err, denied)
			}
		}
	}
}

// TestI15_RequestsOverTimeAreSettled: what was approved for an hour opens nothing after it, and requests that nobody
// answered keep nobody from asking. The log has each end.
func TestI15_RequestsOverTimeAreSettled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	made, err := loadStored(h, "web")
	must(t, err)
	made.AuditLabels = map[string]string{"team": "a"}
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, made))
	ask := func(host string) (Request, error) {
		return h.Requests().Ask(t.Context(), "web", host, 443, nil, "")
	}
	opens := func() bool {
		t.Helper()
		p, err := h.Policy("web")
		must(t, err)
		a, err := Explain(p, "granted.example:443", "", "")
		must(t, err)
		return !a.Denied()
	}
	r, err := ask("granted.example")
	must(t, err)
	must(t, h.Requests().Answer(t.Context(), "web", RequestAnswer{ID: r.ID, Approve: true, Lifetime: "hour", By: "alice"}))
	if !opens() {
		t.Fatal("an approval opens nothing")
	}
	for { // until no more may wait
		if _, err = ask("asked.example"); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrRequest) {
		t.Fatal(err)
	}
	st, err := loadStored(h, "web")
	must(t, err)
	past := time.Now().Add(-time.Minute)
	for i := range st.Requests {
		st.Requests[i].Expires = past
		if st.Requests[i].Until != nil {
			st.Requests[i].Until = &past
		}
	}
	waited := len(st.Requests)
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
	if opens() {
		t.Error("an approval opens something after its hour")
	}
	all, err := h.Requests().List("web")
	must(t, err)
	for i, r := range all {
		if want := map[bool]RequestState{true: RequestEnded, false: RequestExpired}[i == 0]; r.State != want {
			t.Errorf("request %d is %s, want %s", i, r.State, want)
		}
	}
	if err := h.Requests().Answer(t.Context(), "web", RequestAnswer{ID: all[1].ID, Approve: true, Lifetime: "hour", By: "alice"}); !errors.Is(err, ErrRequest) {
		t.Errorf("an expired request is answered: %v", err)
	}
	if _, err := ask("late.example"); err != nil {
		t.Errorf("requests that are over keep others from being asked: %v", err)
	}
	if got := accessEnds(t, namedPath(h, "web", state.AuditLog)); got != waited {
		t.Errorf("the log has %d ends, want %d", got, waited)
	}
}

// TestRequestsAreFoundBesideDamagedSandboxes.
func TestRequestsAreFoundBesideDamagedSandboxes(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "a"))
	must(t, aNamed(t, h, "b"))
	r, err := h.Requests().Ask(t.Context(), "b", "a.example", 443, nil, "")
	must(t, err)
	must(t, os.WriteFile(namedPath(h, "a", state.StoredFile), []byte("{"), 0o600))
	if name, got, err := h.Requests().Find(r.ID); err != nil || name != "b" || got.ID != r.ID {
		t.Errorf("%s, %+v, %v", name, got, err)
	}
	if _, _, err := h.Requests().Find("none"); !errors.Is(err, ErrRequest) {
		t.Errorf("none: %v", err)
	}
}

// TestRequestsBeyondARulesMethodsHelp: a host that is allowed for some methods may be asked for with all of them, and for no
// method that it is allowed for.
func TestRequestsBeyondARulesMethodsHelp(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	st, err := loadStored(h, "web")
	must(t, err)
	st.Policy = "version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\nprotocol = \"https\"\nmethods = [\"GET\"]\n"
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
	for _, c := range []struct {
		methods []string
		helps   bool
	}{{nil, true}, {[]string{"POST"}, true}, {[]string{"GET", "POST"}, true}, {[]string{"GET"}, false}} {
		_, err := h.Requests().Ask(t.Context(), "web", "a.example", 443, c.methods, "")
		if c.helps != (err == nil) || err != nil && !errors.Is(err, ErrRequest) {
			t.Errorf("%q: %v; want help %t", c.methods, err, c.helps)
		}
	}
}

// TestWrongPoliciesAreNotMissing: each kind of fault has its own error.
func TestWrongPoliciesAreNotMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "p.toml")
	must(t, os.WriteFile(file, []byte("version = 2\n"), 0o600))
	var wrong policies.ErrorList
	if _, err := LoadPolicy(file); !errors.As(err, &wrong) || errors.Is(err, ErrPolicyMissing) {
		t.Errorf("a wrong one: %v", err)
	}
	for _, path := range []string{filepath.Join(dir, "none.toml"), dir} {
		if _, err := LoadPolicy(path); !errors.Is(err, ErrPolicyMissing) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// accessEnds counts the ends of requests and grants in an audit log, whose lines about access all have the sandbox's label.
func accessEnds(t *testing.T, path string) (n int) {
	t.Helper()
	tail := audit.NewTail(path)
	defer func() { _ = tail.Close() }()
	must(t, tail.Next(func(_ []byte, e *audit.Event) error {
		if e.Kind == audit.AccessEnd {
			n++
		}
		if strings.HasPrefix(string(e.Kind), "access.") && e.Labels["team"] != "a" {
			t.Errorf("a line without the sandbox's labels: %+v", e)
		}
		return nil
	}))
	return n
}
