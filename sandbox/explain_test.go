package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/internal/rotate"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

func TestExplainJudgesTheRequest(t *testing.T) {
	t.Parallel()
	p, err := policies.Parse("p.toml", []byte("version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\nprotocol = \"https\"\nmethods = [\"GET\"]\npaths = [\"/ok/*\"]\n"), nil)
	must(t, err)
	for request, denied := range map[[2]string]bool{{"GET", "/ok/x"}: false, {"POST", "/ok/x"}: true, {"GET", "/no"}: true} {
		a, err := Explain(p, "a.example:443", request[0], request[1])
		if err != nil || a.Denied() != denied {
			t.Errorf("%q: %+v, %v; want denied %t", request, a, err, denied)
		}
	}
	if _, err := Explain(p, "a.example:443", "GET", "ok/x"); !errors.Is(err, ErrConfig) {
		t.Errorf("a path without a slash: %v", err)
	}
	for _, reason := range []string{"secret_host", "no_rule"} {
		if WhyDenied(reason) == "" {
			t.Errorf("%s has no sentence", reason)
		}
	}
	if WhyDenied("nonesuch") != "" {
		t.Error("an unknown reason has a sentence")
	}
}

// TestDenialsAreWatchedFromNowOn: a watch shows what comes behind its beginning, and Denied all of it, out of the log that
// the sandbox was made with.
func TestDenialsAreWatchedFromNowOn(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		h := newHome(t)
		must(t, aNamed(t, h, "web"))
		path := namedPath(h, "web", state.AuditLog)
		if own {
			path = filepath.Join(t.TempDir(), "own.jsonl")
			st, err := loadStored(h, "web")
			must(t, err)
			st.Audit = path
			must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
		}
		deny := func(host string) {
			t.Helper()
			log, err := audit.OpenLog(path, audit.Options{})
			must(t, err)
			log.Emit(audit.Event{Kind: audit.FlowOpen, Action: "deny", Host: host, Port: 443, Proto: "tcp", Reason: "no_rule"})
			must(t, log.Close())
		}
		deny("a.example")
		w, err := h.WatchDenied("web")
		must(t, err)
		deny("b.example")
		if d, err := w.Next(); err != nil || d.Denied != 1 || d.List[0].Host != "b.example" {
			t.Errorf("own log %t: watched %+v, %v", own, d, err)
		}
		must(t, w.Close())
		if d, err := h.Denied("web"); err != nil || d.Denied != 2 {
			t.Errorf("own log %t: all are %+v, %v", own, d, err)
		}
	}
}

// TestConsolesAreWhole: the part that was set aside comes first. A link in the place of a log is not followed, and no empty
// one either.
func TestConsolesAreWhole(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	log := namedPath(h, "web", state.ConsoleLog)
	must(t, os.WriteFile(rotate.Name(log, 1), []byte("older, "), 0o600))
	must(t, os.WriteFile(log, []byte("newer"), 0o600))
	if got, err := h.Console("web"); err != nil || string(got) != "older, newer" {
		t.Errorf("%q, %v", got, err)
	}
	must(t, os.Remove(log))
	must(t, os.Symlink("/etc/hostname", log))
	if got, err := h.Console("web"); !errors.Is(err, ErrState) {
		t.Errorf("a link: %q, %v", got, err)
	}
}
