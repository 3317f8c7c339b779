package sandbox

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// watched is a sandbox whose supervisor said these lines.
func watched(t *testing.T, said ...string) (s *Sandbox, notices []string) {
	t.Helper()
	s = &Sandbox{run: &runDir{dir: t.TempDir()}, lines: json.NewDecoder(strings.NewReader(strings.Join(said, "\n"))), over: make(chan struct{})}
	s.notice = func(n string) { notices = append(notices, n) }
	s.watch()
	return s, notices
}

// TestStatusIsOfWhatIsThere: a run's record, a damaged sandbox and its place, and no file among them.
func TestStatusIsOfWhatIsThere(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	must(t, os.Mkdir(namedPath(h, "damaged"), 0o700))
	must(t, os.WriteFile(namedPath(h, "damaged", state.StoredFile), []byte("{"), 0o600))
	must(t, os.WriteFile(namedPath(h, "file"), nil, 0o600))
	l, err := state.ListenControl(namedPath(h, "web"))
	must(t, err)
	defer func() { _ = l.Close() }()
	must(t, state.WriteJSON(namedPath(h, "web"), state.InfoFile, state.RunRecord{Started: time.Unix(1, 0), Paused: true, PolicyRefused: "line 3"}))
	all, err := h.List()
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if s := all[0]; s.Name != "damaged" || s.Problem == "" || s.Dir != namedPath(h, "damaged") || s.Running {
		t.Errorf("%+v", s)
	}
	if s := all[1]; s.Name != "web" || !s.Running || !s.Started.Equal(time.Unix(1, 0)) || !s.Paused || s.PolicyRefused != "line 3" || s.Used == 0 {
		t.Errorf("%+v", s)
	}
}

// TestEveryStatusLineIsRead: notices are passed on, denials kept, and the line that ends the sandbox
// counts for nothing else, whatever stands beside it.
func TestEveryStatusLineIsRead(t *testing.T) {
	t.Parallel()
	const denied, failed = `{"denied":{"denied":3,"others":1}}`, `"failed":{"kind":"policy","message":"it broke"}`
	kept := audit.DenialSummary{Denied: 3, Others: 1}
	for name, tt := range map[string]struct {
		said    []string
		notices []string
		denied  audit.DenialSummary
		failure string
	}{
		"all of them":             {[]string{`{"notice":"a"}`, denied, `{"notice":"b"}`, "{" + failed + "}"}, []string{"a", "b"}, kept, "it broke"},
		"a line of nothing":       {[]string{denied, `{}`, `{"notice":"late"}`}, nil, kept, ""},
		"denials beside its end":  {[]string{`{"denied":{"denied":9},` + failed + "}", denied}, nil, audit.DenialSummary{}, "it broke"},
		"a notice beside its end": {[]string{`{"notice":"late",` + failed + "}", denied}, nil, audit.DenialSummary{}, "it broke"},
		"it died":                 {[]string{denied}, nil, kept, ErrSupervisor.Error()},
		"it died within a line":   {[]string{`{"denied":{"denied":9}`}, nil, audit.DenialSummary{}, ErrSupervisor.Error()},
	} {
		s, notices := watched(t, tt.said...)
		<-s.Done()
		err := s.Err()
		if got := s.Denied(); !reflect.DeepEqual(got, tt.denied) || !reflect.DeepEqual(notices, tt.notices) {
			t.Errorf("%s: %+v, notices %q; want %+v, %q", name, got, notices, tt.denied, tt.notices)
		}
		if (err == nil) != (tt.failure == "") || err != nil && !strings.Contains(err.Error(), tt.failure) {
			t.Errorf("%s: %v, want %q", name, err, tt.failure)
		}
		var f *Failure
		if tt.failure == "it broke" && (!errors.As(err, &f) || f.Kind != "policy") {
			t.Errorf("%s: %#v has not the kind that the supervisor named", name, err)
		}
	}
}
