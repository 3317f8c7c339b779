package supervisor

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
)

// fakeWorld is a host's two clocks and a guest with its own.
type fakeWorld struct {
	mono   time.Duration
	wall   time.Time
	offset time.Duration   // of the guest's clock from the host's
	late   []time.Duration // how long the next calls take, half of it each way
	frozen bool            // the guest's clock stands while a call is late: its VMM is stopped
	calls  int
	sets   int
	refuse error
}

func (w *fakeWorld) pass(d time.Duration) { w.mono += d; w.wall = w.wall.Add(d) }

func (w *fakeWorld) call() func() {
	w.calls++
	var d time.Duration
	if len(w.late) > 0 {
		d, w.late = w.late[0], w.late[1:]
	}
	w.pass(d / 2)
	if w.frozen {
		w.offset -= d
	}
	return func() { w.pass(d / 2) }
}

func (w *fakeWorld) Stats(context.Context) (agentclient.Stats, error) {
	defer w.call()()
	return agentclient.Stats{Clock: w.wall.Add(w.offset)}, w.refuse
}

func (w *fakeWorld) SetClock(_ context.Context, t time.Time) (time.Duration, error) {
	defer w.call()()
	w.sets++
	off := w.wall.Add(w.offset).Sub(t)
	w.offset = t.Sub(w.wall)
	return off, w.refuse
}

func (w *fakeWorld) clock() *guestClock {
	c := &guestClock{guest: w, wall: func() time.Time { return w.wall }, mono: func() time.Duration { return w.mono }}
	c.jumped()
	return c
}

func TestGuestsClockIsKept(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		offset time.Duration
		late   []time.Duration
		frozen bool
		sets   int
	}{
		"exact":                          {},
		"off by less than is worth it":   {offset: 200 * time.Millisecond},
		"behind":                         {offset: -time.Second, sets: 1},
		"far behind":                     {offset: -30 * 365 * 24 * time.Hour, sets: 1},
		"ahead":                          {offset: time.Hour, sets: 1},
		"exact and slow once":            {late: []time.Duration{20 * time.Second}},
		"behind and slow once":           {offset: -5 * time.Second, late: []time.Duration{4 * time.Second}, sets: 1},
		"behind, setting is slow":        {offset: -5 * time.Second, late: []time.Duration{0, 3 * time.Second}, sets: 2},
		"stopped while it is asked":      {late: []time.Duration{6 * time.Second}, frozen: true, sets: 1},
		"stopped while it is set":        {offset: -time.Minute, late: []time.Duration{0, 6 * time.Second}, frozen: true, sets: 2},
		"behind by less than the answer": {offset: -2 * time.Second, late: []time.Duration{3 * time.Second}, sets: 1},
		"behind within a slow answer":    {offset: -time.Second, late: []time.Duration{3 * time.Second}, sets: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &fakeWorld{wall: time.Unix(1_700_000_000, 0), offset: tt.offset, late: tt.late, frozen: tt.frozen}
			if !w.clock().look(t.Context()) {
				t.Error("the guest answered, look says that it didn't")
			}
			if w.offset.Abs() > 500*time.Millisecond {
				t.Errorf("the guest's clock is off by %s afterwards", w.offset)
			}
			if w.sets != tt.sets {
				t.Errorf("it was set %d times, want %d", w.sets, tt.sets)
			}
		})
	}
}

// TestLyingClocksAreLeftAlone guards against a guest that keeps the supervisor busy.
func TestLyingClocksAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := &fakeWorld{wall: time.Unix(1_700_000_000, 0)}
	c := w.clock()
	c.guest = liar{w}
	if !c.look(t.Context()) {
		t.Error("the guest answered, look says that it didn't")
	}
	if w.calls > 2*clockTries {
		t.Errorf("%d calls, want at most %d", w.calls, 2*clockTries)
	}
	w.refuse = errors.New("refused")
	if c.look(t.Context()) {
		t.Error("the guest did not answer, look says that it did")
	}
}

type liar struct{ *fakeWorld }

func (l liar) Stats(ctx context.Context) (agentclient.Stats, error) {
	s, err := l.fakeWorld.Stats(ctx)
	s.Clock = time.Unix(0, 0)
	return s, err
}

func TestHostClockJumpsAreNoticed(t *testing.T) {
	t.Parallel()
	w := &fakeWorld{wall: time.Unix(1_700_000_000, 0)}
	c := w.clock()
	for _, step := range []struct {
		what       string
		mono, wall time.Duration
		want       bool
	}{
		{"a second", time.Second, time.Second, false},
		{"NTP slews", time.Second, time.Second + 500*time.Microsecond, false},
		{"the host sleeps for an hour", time.Second, time.Hour, true},
		{"it goes on", time.Second, time.Second, false},
		{"its clock is set back", time.Second, -time.Hour, true},
		{"it stalls", time.Hour, time.Hour, false},
	} {
		w.mono += step.mono
		w.wall = w.wall.Add(step.wall)
		if got := c.jumped(); got != step.want {
			t.Errorf("%s: jumped is %v, want %v", step.what, got, step.want)
		}
	}
}

// TestOnlyASilentAgentIsDead has an agent that answers, one that answers with an error, and one that doesn't answer until
// the wait for it is over, in a sandbox that goes on and in one that ends.
func TestOnlyASilentAgentIsDead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		refuse      error
		ends        bool
		late, alive bool
	}{
		"it answers":            {nil, false, false, true},
		"it answers an error":   {errors.New("no such call"), false, false, true},
		"it is silent":          {context.DeadlineExceeded, false, true, false},
		"the sandbox ends":      {context.Canceled, true, true, true},
		"it answers at the end": {nil, true, true, true},
	} {
		s := &supervisor{}
		s.ctx, s.cancel = context.WithCancelCause(t.Context())
		ctx, cancel := context.WithCancel(s.ctx)
		if tt.ends {
			s.cancel(errCallerGone)
		}
		if tt.late {
			cancel()
		}
		w := &fakeWorld{wall: time.Unix(1, 0), refuse: tt.refuse}
		if got := s.alive(ctx, w.clock()); got != tt.alive {
			t.Errorf("%s: alive %v", name, got)
		}
		cancel()
	}
}

func TestClockOfAHandshakeIsLookedAtWhereItMayBeOff(t *testing.T) {
	t.Parallel()
	for behind, want := range map[time.Duration]bool{
		-1: false, 0: true, clockSlack: true, clockSlack + 1: false, time.Hour: false, -time.Hour: false,
	} {
		if exact(behind) != want {
			t.Errorf("%v behind: exact is %v", behind, !want)
		}
	}
}

// TestSandboxesAreReadyOnceTheirClockIsRight: what runs first may look at certificates.
func TestSandboxesAreReadyOnceTheirClockIsRight(t *testing.T) {
	t.Parallel()
	for _, behind := range []time.Duration{0, time.Hour, -time.Hour} {
		g := &guestVM{behind: &atomic.Int64{}}
		g.behind.Store(int64(behind))
		_, info := superviseFake(t, g, newPlan(t, t.TempDir(), ""))
		if off := time.Duration(g.behind.Load()); info == nil || off.Abs() > time.Minute {
			t.Errorf("%s behind, it is ready: %t, %s behind", behind, info != nil, off)
		}
	}
}
