package supervisor

import (
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

func newLife(lifetime, idle, ran time.Duration) *life {
	l := new(life)
	l.begin(time.Unix(0, 0), &state.Spec{Lifetime: lifetime, IdleStop: idle}, ran, false)
	return l
}

func after(d time.Duration) time.Time { return time.Unix(0, 0).Add(d) }

// looks fails the test unless the life's end is at that time, 0 for none near, and is news or not.
func looks(t *testing.T, l *life, what string, at time.Duration, busy bool, end time.Duration, news bool) {
	t.Helper()
	got, isNews := l.look(after(at), busy)
	if (got == nil) != (end == 0) || got != nil && !got.at.Equal(after(end)) || isNews != news {
		t.Errorf("%s: end %+v, news %v; want %s, %v", what, got, isNews, end, news)
	}
}

func TestOnlyTheUnusedStopsIdle(t *testing.T) {
	t.Parallel()
	l := newLife(0, time.Minute, 0)
	looks(t, l, "the first look", 0, false, 0, false)
	looks(t, l, "just before the notice", 30*time.Second-1, false, 0, false)
	looks(t, l, "the notice", 30*time.Second, false, time.Minute, true)
	looks(t, l, "a second later", 31*time.Second, false, time.Minute, false)
	looks(t, l, "a job, or a client of a port", 32*time.Second, true, 0, true)
	looks(t, l, "it is there still", 2*time.Minute, true, 0, false)
	looks(t, l, "it has ended", 3*time.Minute, false, 0, false)
	done := l.call()
	looks(t, l, "a call", 3*time.Minute+50*time.Second, false, 0, false)
	looks(t, l, "the same call, still open", 8*time.Minute, false, 0, false)
	looks(t, l, "the same call, a minute later", 9*time.Minute, false, 0, false)
	done()
	done()
	looks(t, l, "its end", 10*time.Minute, false, 0, false)
	l.call()() // over before the next look
	looks(t, l, "a short call", 11*time.Minute, false, 0, false)
	looks(t, l, "nothing", 12*time.Minute, false, 0, false)
	looks(t, l, "a look that comes late", 14*time.Minute, false, 14*time.Minute+30*time.Second, true) // no end is unannounced
	kept := newLife(0, time.Minute, 0)
	looks(t, kept, "the first look", 0, false, 0, false)
	looks(t, kept, "the notice", 30*time.Second, false, time.Minute, true)
	kept.change(after(45*time.Second), &state.Spec{IdleStop: time.Minute}, true)
	looks(t, kept, "its time begins again", 50*time.Second, false, 0, true)
	looks(t, kept, "the next notice", 80*time.Second, false, 110*time.Second, true)
	forever := newLife(0, 0, 0)
	looks(t, forever, "without a limit", 1000*time.Hour, false, 0, false)
}

func TestLifetimesAreRunningTime(t *testing.T) {
	t.Parallel()
	l := newLife(time.Hour, 0, 20*time.Minute)
	looks(t, l, "the first look", 0, true, 0, false)
	if ran := l.ranBy(after(10 * time.Minute)); ran != 30*time.Minute {
		t.Errorf("%s are kept, want those of the run before and of this one", ran)
	}
	looks(t, l, "the notice", 40*time.Minute-20*time.Second, true, 40*time.Minute+10*time.Second, true)
	l.change(after(40*time.Minute), &state.Spec{Lifetime: time.Hour}, true)
	looks(t, l, "kept", 40*time.Minute, true, 0, true)
	looks(t, l, "the new time", 99*time.Minute+30*time.Second, true, 100*time.Minute, true)
	l.change(after(99*time.Minute+40*time.Second), &state.Spec{Lifetime: 2 * time.Hour}, false)
	looks(t, l, "a longer one", 99*time.Minute+40*time.Second, true, 0, true)
	l.change(after(100*time.Minute), &state.Spec{Lifetime: time.Minute}, false)
	looks(t, l, "one that is over already", 100*time.Minute, true, 100*time.Minute+30*time.Second, true)
	short := newLife(20*time.Second, 0, 0)
	looks(t, short, "less than half of a short life", 10*time.Second-1, true, 0, false)
	looks(t, short, "its notice", 10*time.Second, true, 20*time.Second, true)
	over := newLife(time.Hour, 0, time.Hour)
	if ran := over.ranBy(after(0)); ran != 0 {
		t.Errorf("a time that was over goes on with %s, want it again", ran)
	}
}

// TestCrashesGiveNoLifetime: what begins again by `msb start`, the twin, doesn't by a crash, and the notice of each machine is
// no time that crashes can repeat.
func TestCrashesGiveNoLifetime(t *testing.T) {
	t.Parallel()
	spec := &state.Spec{Lifetime: time.Hour}
	for _, crashed := range []bool{true, false} {
		l := new(life)
		l.begin(after(0), spec, time.Hour, crashed)
		if over := l.over(after(time.Second)); errors.Is(over, state.ErrLifetime) != crashed {
			t.Errorf("crashed %v: %v", crashed, over)
		}
	}
	near := new(life)
	near.begin(after(0), spec, time.Hour-time.Second, true)
	looks(t, near, "a second before the end", 0, true, 30*time.Second, true)
	if err := near.over(after(time.Second - 1)); err != nil {
		t.Errorf("before the end: %v", err)
	}
	if err := near.over(after(time.Second)); !errors.Is(err, state.ErrLifetime) {
		t.Errorf("in the notice: %v", err)
	}
	if err := newLife(0, time.Minute, time.Hour).over(after(time.Hour)); err != nil {
		t.Errorf("without a lifetime: %v", err)
	}
}

func TestTheFirstOfTwoEndsCounts(t *testing.T) {
	t.Parallel()
	l := newLife(10*time.Minute, 9*time.Minute+50*time.Second, 0)
	looks(t, l, "unused", 0, false, 0, false)
	looks(t, l, "the first is near", 9*time.Minute+20*time.Second, false, 9*time.Minute+50*time.Second, true)
	looks(t, l, "both are", 9*time.Minute+40*time.Second, false, 9*time.Minute+50*time.Second, false)
	looks(t, l, "used again: the other stays", 9*time.Minute+45*time.Second, true, 10*time.Minute+15*time.Second, true)
}

// TestAnIdleSandboxEndsInOrder lets a sandbox with a name that nobody uses reach its time: its disk is written back, and
// how it ended can be read.
func TestAnIdleSandboxEndsInOrder(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.IdleStop, p.UpperDisk = time.Nanosecond, "upper"
	g := &guestVM{}
	s, info := superviseFake(t, g, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	if err := <-s.ended; !errors.Is(err, state.ErrIdle) || state.KindOf(err) != state.KindIdle || g.shutdowns != 1 {
		t.Errorf("ended with %v, %d shutdowns", err, g.shutdowns)
	}
	var end state.End
	must(t, state.ReadJSON(p.Dir, state.EndFile, &end))
	if end.Kind != state.KindIdle || end.Message == "" {
		t.Errorf("its end: %+v", end)
	}
}

// TestIdleSandboxesStopAfterTheirTime runs a supervisor's looks by a clock of the test's: a sandbox with 30 minutes lives
// until nobody has used it for 30 minutes, and a use begins them again. That the next call of an MCP client starts it again
// is mcp's TestI13_HistoryOutlivesServers.
func TestIdleSandboxesStopAfterTheirTime(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.IdleStop, p.UpperDisk = 30*time.Minute, "upper"
	var clock atomic.Int64
	looks, g := make(chan time.Time), &guestVM{}
	s, info := superviseFake(t, g, p, func(s *supervisor) {
		s.now = func() time.Time { return after(time.Duration(clock.Load())) }
		s.looks = func() (<-chan time.Time, func()) { return looks, func() {} }
	})
	if info == nil {
		t.Fatal(<-s.ended)
	}
	var over error
	lookAt := func(minutes, seconds int) (alive bool) {
		t.Helper()
		clock.Store(int64(time.Duration(minutes)*time.Minute + time.Duration(seconds)*time.Second))
		for range 2 { // once the second is taken, the first is over
			select {
			case looks <- time.Time{}:
			case over = <-s.ended:
				return false
			}
		}
		return true
	}
	for _, at := range [][2]int{{0, 0}, {29, 30}, {29, 59}} {
		if !lookAt(at[0], at[1]) {
			t.Fatalf("it ended at %v: %v", at, over)
		}
	}
	s.life.call()() // a use just before the end
	for _, at := range [][2]int{{30, 0}, {30, 1}, {59, 30}, {59, 59}} {
		if !lookAt(at[0], at[1]) {
			t.Fatalf("used, it ended at %v: %v", at, over)
		}
	}
	if lookAt(60, 0) {
		t.Error("it lives, and nobody has used it for 30 minutes")
		s.cancel(errCallerGone)
	} else if !errors.Is(over, state.ErrIdle) || g.shutdowns != 1 {
		t.Errorf("ended with %v, %d shutdowns", over, g.shutdowns)
	}
}

// TestLifetimesEndSandboxesInOrder: a sandbox ends with its lifetime, is written back, and its time is kept. The twin is
// TestAnIdleSandboxEndsInOrder's, without a lifetime.
func TestLifetimesEndSandboxesInOrder(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.Lifetime, p.UpperDisk = time.Nanosecond, "upper"
	must(t, state.WriteJSON(p.Dir, state.StoredFile, state.Stored{Version: state.StoredVersion, Spec: state.Spec{Name: "web", Lifetime: time.Nanosecond}}))
	g := &guestVM{}
	s, info := superviseFake(t, g, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	if err := <-s.ended; !errors.Is(err, state.ErrLifetime) || g.shutdowns != 1 {
		t.Errorf("ended with %v, %d shutdowns", err, g.shutdowns)
	}
	var end state.End
	must(t, state.ReadJSON(p.Dir, state.EndFile, &end))
	if end.Kind != state.KindLifetime || end.Message == "" {
		t.Errorf("its end: %+v", end)
	}
	if st, err := state.ReadStored(p.Dir, "web"); err != nil || st.Ran < time.Nanosecond {
		t.Errorf("%v: its running time is not kept: %+v", err, st)
	}
}

// TestUpdatesApplyAtOnceAndStay changes a sandbox that runs.
func TestUpdatesApplyAtOnceAndStay(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	s, info := superviseFake(t, &guestVM{}, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	hour, cpus := time.Hour, 3
	text, err := json.Marshal(state.Changes{Lifetime: &hour, CPUs: &cpus, Restart: &state.Restart{When: state.RestartAlways}, Labels: map[string]string{"a": "b"}})
	must(t, err)
	must(t, s.Update(text))
	st, err := state.ReadStored(p.Dir, "web")
	must(t, err)
	if st.Lifetime != hour || st.CPUs != 3 || st.Restart.When != state.RestartAlways || st.Labels["a"] != "b" || s.jobs.Restart.When != state.RestartAlways || s.life.lifetime != hour {
		t.Errorf("%+v", st)
	}
	if err := s.Update([]byte(`{"later":1}`)); err == nil {
		t.Error("a change that nobody knows is believed made")
	}
	s.cancel(errCallerGone)
	must(t, <-s.ended)
}

// TestTimesStandStillInAPause: its twin is the time that runs before and after.
func TestTimesStandStillInAPause(t *testing.T) {
	t.Parallel()
	l := newLife(time.Hour, 10*time.Minute, 0)
	looks(t, l, "the first look", 0, false, 0, false)
	looks(t, l, "the notice", 9*time.Minute+30*time.Second, false, 10*time.Minute, true)
	l.setPaused(after(9*time.Minute+40*time.Second), true)
	if ran := l.ranBy(after(5 * time.Hour)); ran != 9*time.Minute+40*time.Second {
		t.Errorf("it ran for %s", ran)
	}
	looks(t, l, "a look at one that stands still", 5*time.Hour, false, 0, false)
	l.setPaused(after(6*time.Hour), false)
	looks(t, l, "the notice is taken back", 6*time.Hour, false, 0, true)
	looks(t, l, "unused again", 6*time.Hour+9*time.Minute+30*time.Second, false, 6*time.Hour+10*time.Minute, true)
	if ran := l.ranBy(after(6*time.Hour + time.Minute)); ran != 10*time.Minute+40*time.Second {
		t.Errorf("it ran for %s", ran)
	}
}
