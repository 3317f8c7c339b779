package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
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
