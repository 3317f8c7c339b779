package supervisor

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/handoff"
	"github.com/msb-project/msb/sandbox/internal/state"
)

func TestOnlyTheUnusedStopsIdle(t *testing.T) {
	t.Parallel()
	w := new(idleWatch)
	at := func(after time.Duration) time.Time { return time.Unix(0, 0).Add(after) }
	looks := func(what string, after time.Duration, jobs int, want bool) {
		t.Helper()
		if err := w.look(at(after), jobs, time.Minute); errors.Is(err, state.ErrIdle) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	looks("the first look", 0, 0, false)
	looks("just before its time", time.Minute-1, 0, false)
	looks("a job", time.Minute, 1, false)
	looks("the job has ended", 2*time.Minute, 0, false)
	a, b := net.Pipe()
	t.Cleanup(func() { _ = b.Close() })
	conn, err := w.counted(handoff.Of(a)).Accept()
	must(t, err)
	looks("a client", 5*time.Minute, 0, false)
	must(t, conn.Close())
	_ = conn.Close() // as servers do: it counts once
	looks("the client has gone", 6*time.Minute, 0, false)
	looks("its time", 7*time.Minute, 0, true)
	if err := w.look(at(time.Hour), 0, 0); err != nil {
		t.Errorf("without a limit: %v", err)
	}
}

// TestAnIdleSandboxEndsInOrder lets a sandbox with a name that nobody uses reach its time: its disk is written back, and
// how it ended can be read.
func TestAnIdleSandboxEndsInOrder(t *testing.T) {
	t.Parallel()
	h := t.TempDir()
	p := newPlan(t, h, "web")
	p.IdleStop, p.UpperDisk = time.Nanosecond, "upper"
	g := &guestVM{}
	s, info := superviseFake(t, g, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	must(t, s.caller.Close())
	if err := <-s.ended; !errors.Is(err, state.ErrIdle) || state.KindOf(err) != state.KindIdle || g.shutdowns != 1 {
		t.Errorf("ended with %v, %d shutdowns", err, g.shutdowns)
	}
	var end state.End
	must(t, state.ReadJSON(p.Dir, state.EndFile, &end))
	if end.Kind != state.KindIdle || end.Message == "" {
		t.Errorf("its end: %+v", end)
	}
}

// TestLifetimesEndSandboxesInOrder: a sandbox whose client is there ends with its lifetime, and is written back. The twin
// is TestAnIdleSandboxEndsInOrder's, without a lifetime.
func TestLifetimesEndSandboxesInOrder(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.Lifetime, p.UpperDisk = time.Nanosecond, "upper"
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
}
