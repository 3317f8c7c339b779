package supervisor

import (
	"context"
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

// TestI1_ApprovalsNeedTheirLine: without its line in the audit log an approval opens nothing, now and at the next start. Its
// twin has the line, and taking back needs none.
func TestI1_ApprovalsNeedTheirLine(t *testing.T) {
	t.Parallel()
	s, _, first := governed(t, state.ForHour)
	of := func(id string) state.RequestState {
		t.Helper()
		st, err := state.ReadStored(s.plan.Dir, s.plan.Name)
		must(t, err)
		for i := range st.Requests {
			if st.Requests[i].ID == id {
				return st.Requests[i].State
			}
		}
		return ""
	}
	granted := func() int {
		t.Helper()
		st, err := state.ReadStored(s.plan.Dir, s.plan.Name)
		must(t, err)
		return len(st.Granted())
	}
	if of(first) != state.RequestApproved || granted() != 1 { // the twin
		t.Fatal(of(first))
	}
	r := state.NewRequest("www.example.com", 443, nil, "a test", time.Now())
	must(t, s.access.ask(&r))
	must(t, s.records.Close(nil)) // nothing is written from now on
	approve := &state.RequestAnswer{ID: r.ID, Approve: true, Lifetime: state.ForOnce, By: "alice"}
	if err := s.access.answer(approve); !errors.Is(err, audit.ErrClosed) {
		t.Errorf("approved: %v", err)
	}
	if of(r.ID) != state.RequestPending || granted() != 1 || len(s.access.once) != 0 {
		t.Errorf("it is %s, and %d are granted", of(r.ID), granted())
	}
	must(t, s.access.answer(&state.RequestAnswer{ID: first, By: "bob"}))
	if of(first) != state.RequestRevoked || granted() != 0 {
		t.Errorf("taken back: it is %s", of(first))
	}
}

// TestI12_UnwrittenPortsAreNotPublished, neither at the next start nor by the next change. Its twin is written.
func TestI12_UnwrittenPortsAreNotPublished(t *testing.T) {
	t.Parallel()
	plan := newPlan(t, t.TempDir(), "web")
	plan.NoNet = false
	s, info := superviseFake(t, &guestVM{}, plan)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	stored := func() int {
		t.Helper()
		st, err := state.ReadStored(plan.Dir, "web")
		must(t, err)
		return len(st.Ports)
	}
	record := filepath.Join(plan.Dir, state.InfoFile)
	must(t, os.Remove(record))
	must(t, os.MkdirAll(filepath.Join(record, "x"), 0o700)) // no file takes its place
	if text, err := s.ports.AddPort("80"); err == nil || stored() != 0 || len(s.ports.open) != 0 {
		t.Errorf("%q, %v: %d are stored", text, err, stored())
	}
	must(t, os.RemoveAll(record))
	// The record is written, and the state isn't.
	file := filepath.Join(plan.Dir, state.StoredFile)
	before, err := os.ReadFile(file)
	must(t, err)
	must(t, os.Remove(file))
	must(t, os.MkdirAll(filepath.Join(file, "x"), 0o700))
	text, err := s.ports.AddPort("80")
	var r state.RunRecord
	must(t, state.ReadJSON(plan.Dir, state.InfoFile, &r))
	if err == nil || r.Info == nil || len(r.Info.Ports) != 0 || len(s.ports.open) != 0 {
		t.Errorf("%q, %v: %+v is told", text, err, r.Info)
	}
	must(t, os.RemoveAll(file))
	must(t, os.WriteFile(file, before, 0o600))
	text, err = s.ports.AddPort("81")
	r = state.RunRecord{}
	must(t, errors.Join(err, state.ReadJSON(plan.Dir, state.InfoFile, &r)))
	if stored() != 1 || len(r.Info.Ports) != 1 || r.Info.Ports[0].Guest != 81 {
		t.Errorf("%q: %d are stored, and %v are told", text, stored(), r.Info.Ports)
	}
	must(t, os.Remove(record))
	must(t, os.MkdirAll(filepath.Join(record, "x"), 0o700))
	if removed, err := s.ports.RemovePort("81"); err == nil || stored() != 1 || len(s.ports.open) != 1 {
		t.Errorf("%v is removed, %v: %d are stored", removed, err, stored())
	}
	must(t, os.RemoveAll(record))
	s.cancel(errCallerGone)
	must(t, <-s.ended)
}

// TestI12_UnwrittenPausesChangeNothing: the guest is left as it was, with its clock and its lifetime.
func TestI12_UnwrittenPausesChangeNothing(t *testing.T) {
	t.Parallel()
	plan := newPlan(t, t.TempDir(), "box")
	guest := new(guestVM)
	s, info := superviseFake(t, guest, plan)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	record := filepath.Join(plan.Dir, state.InfoFile)
	p := &s.pause
	stands := func() bool {
		s.life.mu.Lock()
		defer s.life.mu.Unlock()
		return s.life.paused
	}
	for _, to := range []bool{true, false} {
		must(t, os.Remove(record))
		must(t, os.MkdirAll(filepath.Join(record, "x"), 0o700))
		if err := p.set(to); err == nil || p.on.Load() == to || stands() == to || guest.paused.Load() == to {
			t.Errorf("to %t, unwritten: %v; paused %t, its machine %t, its time stands %t", to, err, p.on.Load(), guest.paused.Load(), stands())
		}
		must(t, os.RemoveAll(record))
		must(t, p.set(to))
		var r state.RunRecord
		must(t, state.ReadJSON(plan.Dir, state.InfoFile, &r))
		if p.on.Load() != to || stands() != to || r.Paused != to || guest.paused.Load() != to {
			t.Errorf("to %t: paused %t, its machine %t, its time stands %t, told %t", to, p.on.Load(), guest.paused.Load(), stands(), r.Paused)
		}
	}
	s.cancel(errCallerGone)
	must(t, <-s.ended)
}

// overdue makes the one grant of a sandbox end a second ago.
func overdue(t *testing.T, s *supervisor) {
	t.Helper()
	st, err := state.ReadStored(s.plan.Dir, s.plan.Name)
	must(t, err)
	until := time.Now().Add(-time.Second)
	st.Requests[0].Until = &until
	must(t, state.WriteJSON(s.plan.Dir, state.StoredFile, st))
	s.access.mu.Lock()
	s.access.next = until
	s.access.mu.Unlock()
}

// TestI15_GrantsThatCannotBeTakenBackEndTheSandbox: one whose time is over would stay in force. The twin is one whose time is
// not over.
func TestI15_GrantsThatCannotBeTakenBackEndTheSandbox(t *testing.T) {
	t.Parallel()
	for _, over := range []bool{false, true} {
		s, _, _ := governed(t, state.ForHour)
		s.ctx, s.cancel = context.WithCancelCause(t.Context())
		if over {
			overdue(t, s)
		}
		must(t, os.WriteFile(filepath.Join(s.plan.Dir, state.StoredFile), []byte("damaged"), 0o600))
		if err := s.access.change(nil); err == nil {
			t.Errorf("over %t: state that can't be read is no error", over)
		}
		if ended := context.Cause(s.ctx); (ended != nil) != over || over && !strings.Contains(ended.Error(), "taken back") {
			t.Errorf("over %t: the sandbox ends with %v", over, ended)
		}
	}
}

// TestI13_EndsOfGrantsAreWrittenLater, when the disk takes them again. They are in force at once.
func TestI13_EndsOfGrantsAreWrittenLater(t *testing.T) {
	t.Parallel()
	s, _, id := governed(t, state.ForHour)
	overdue(t, s)
	file := filepath.Join(s.plan.Dir, state.StoredFile)
	text, err := os.ReadFile(file)
	must(t, err)
	granted := -1
	err = s.access.settle([]string{id}, func(rules []policies.Rule) error {
		granted = len(rules)
		return errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "x"), 0o700)) // no file takes its place
	})
	if !errors.Is(err, errUnwritten) || granted != 0 {
		t.Fatalf("%v; %d stay granted", err, granted)
	}
	if now := time.Now(); s.access.due(now) || !s.access.due(now.Add(accessRetry)) {
		t.Error("it is not tried again after its pause")
	}
	must(t, errors.Join(os.RemoveAll(file), os.WriteFile(file, text, 0o600)))
	if again := s.access.take(); len(again) != 1 || again[0] != id {
		t.Errorf("%q is to be written", again)
	}
	must(t, s.access.settle([]string{id}, func([]policies.Rule) error { return nil }))
	if got := requestState(t, s); got != state.RequestEnded {
		t.Errorf("it is %s", got)
	}
}
