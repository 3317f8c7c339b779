package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
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
	looks(t, l, "when the old time would be over", 80*time.Minute, true, 0, false)
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
	other := newLife(10*time.Minute, 10*time.Minute+10*time.Second, 0)
	looks(t, other, "unused", 0, false, 0, false)
	looks(t, other, "the lifetime's end is near", 9*time.Minute+30*time.Second, false, 10*time.Minute, true)
	looks(t, other, "the idle timeout is too, and comes later", 9*time.Minute+45*time.Second, false, 10*time.Minute, false)
}

// TestUsesPutOffNoLifetime: a sandbox that is idle and used in turns ends when its lifetime's end was announced to come.
func TestUsesPutOffNoLifetime(t *testing.T) {
	t.Parallel()
	l := newLife(10*time.Minute, 4*time.Second, 0)
	looks(t, l, "the lifetime's end is near", 9*time.Minute+35*time.Second, true, 10*time.Minute+5*time.Second, true)
	for at := 9*time.Minute + 36*time.Second; at < 10*time.Minute; at += 6 * time.Second {
		looks(t, l, "unused", at, false, 10*time.Minute+5*time.Second, false)
		looks(t, l, "idle is nearer", at+3*time.Second, false, at+5*time.Second, true)
		looks(t, l, "used", at+4*time.Second, true, 10*time.Minute+5*time.Second, true)
	}
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
		for range 3 { // once the third is taken, the second is over, which sees that nobody uses it since the first
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

// TestI13_RunningTimeIsSavedEachMinute: a supervisor that is killed writes nothing down at its end.
func TestI13_RunningTimeIsSavedEachMinute(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.Lifetime = time.Hour
	must(t, state.WriteJSON(p.Dir, state.StoredFile, state.Stored{Version: state.StoredVersion, Spec: state.Spec{Name: "web", Lifetime: time.Hour}}))
	var clock atomic.Int64
	looks := make(chan time.Time)
	s, info := superviseFake(t, &guestVM{}, p, func(s *supervisor) {
		s.now = func() time.Time { return after(time.Duration(clock.Load())) }
		s.looks = func() (<-chan time.Time, func()) { return looks, func() {} }
	})
	if info == nil {
		t.Fatal(<-s.ended)
	}
	const perMinute = int(time.Minute / livenessEvery)
	for minute := range 3 {
		clock.Store(int64(time.Duration(minute+1) * time.Minute))
		for n := range perMinute {
			select {
			case looks <- time.Time{}:
			case err := <-s.ended:
				t.Fatalf("it ended: %v", err)
			}
			if st, err := state.ReadStored(p.Dir, "web"); err != nil || n < perMinute-1 && st.Ran > time.Duration(minute)*time.Minute {
				t.Fatalf("%d looks in minute %d: %+v, %v", n, minute, st, err)
			}
		}
		for end := time.Now().Add(time.Minute); ; { // until the last look is over
			st, err := state.ReadStored(p.Dir, "web")
			must(t, err)
			if st.Ran == time.Duration(minute+1)*time.Minute {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("after %d minutes %s are written down", minute+1, st.Ran)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// TestI13_StateThatCannotBeWrittenIsAnError, and a sandbox without a lifetime has no running time to write each minute.
func TestI13_StateThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	s, info := superviseFake(t, &guestVM{}, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	stored := filepath.Join(p.Dir, state.StoredFile)
	before, err := os.Stat(stored)
	must(t, err)
	must(t, s.named.saveRan())
	if now, err := os.Stat(stored); err != nil || !os.SameFile(before, now) {
		t.Errorf("a running time that nothing bounds is written down: %v", err)
	}
	text, err := os.ReadFile(stored)
	must(t, err)
	err = s.named.changeStored(func(*state.Stored) bool {
		must(t, os.Remove(stored))
		must(t, os.MkdirAll(filepath.Join(stored, "x"), 0o700)) // no file takes its place
		return true
	})
	if err == nil {
		t.Error("a change that was not written is believed made")
	}
	must(t, os.RemoveAll(stored))
	must(t, os.WriteFile(stored, text, 0o600))
	s.cancel(errCallerGone)
	must(t, <-s.ended)
}

// TestUpdatesApplyAtOnceAndStay changes a sandbox that runs.
func TestUpdatesApplyAtOnceAndStay(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	s, info := superviseFake(t, &guestVM{}, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	ran := func() time.Duration {
		s.life.mu.Lock()
		defer s.life.mu.Unlock()
		return s.life.ran
	}
	s.life.mu.Lock()
	s.life.ran = time.Minute
	s.life.mu.Unlock()
	hour, cpus := time.Hour, 3
	text, err := json.Marshal(state.Changes{Lifetime: &hour, CPUs: &cpus, Restart: &state.Restart{When: state.RestartAlways}, Labels: map[string]string{"a": "b"}})
	must(t, err)
	must(t, s.Update(text))
	st, err := state.ReadStored(p.Dir, "web")
	must(t, err)
	if st.Lifetime != hour || st.CPUs != 3 || st.Restart.When != state.RestartAlways || st.Labels["a"] != "b" || s.jobs.Restart.When != state.RestartAlways || s.life.lifetime != hour {
		t.Errorf("%+v", st)
	}
	if got := ran(); got != time.Minute {
		t.Errorf("a change of something else starts its time again: it has had %s", got)
	}
	text, err = json.Marshal(state.Changes{Keep: true})
	must(t, err)
	if err := s.Update(text); err != nil || ran() != 0 {
		t.Errorf("kept, it has had %s: %v", ran(), err)
	}
	for _, request := range []state.Changes{{Ask: &state.Request{}}, {Answer: &state.RequestAnswer{}}} {
		text, err := json.Marshal(request)
		must(t, err)
		if err := s.Update(text); !errors.Is(err, state.ErrRequest) {
			t.Errorf("a request of one without a network: %v", err)
		}
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

// Exec runs a command that ends by the first signal.
func (g *guestVM) Exec(s agentpb.Agent_ExecServer) error {
	if g.did == nil {
		return g.UnimplementedAgentServer.Exec(s)
	}
	if _, err := s.Recv(); err != nil {
		return err
	}
	if err := s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Started{Started: &agentpb.Started{Pid: 7}}}); err != nil {
		return err
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		if n := r.GetSignal(); n != 0 {
			g.did(fmt.Sprintf("signal %d", n))
			return s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Exit{Exit: &agentpb.Exit{Code: 128 + int32(n), Signal: n}}})
		}
	}
}

// guestFiles are a guest's, of which it tells what is written and removed.
type guestFiles struct {
	agentpb.UnimplementedFilesServer
	did func(string)
}

func (f guestFiles) Write(s agentpb.Files_WriteServer) error {
	var path, text string
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if start := r.GetStart(); start != nil {
			path = start.GetPath()
		}
		text += string(r.GetData())
	}
	f.did(fmt.Sprintf("write %s %q", path, text))
	return s.SendAndClose(&agentpb.FileInfo{Name: []byte(filepath.Base(path)), Mode: 0o100644})
}

func (f guestFiles) Change(_ context.Context, r *agentpb.ChangeRequest) (*agentpb.ChangeResponse, error) {
	f.did("remove " + r.GetRemove().GetPath())
	return &agentpb.ChangeResponse{}, nil
}

// TestStopsAreAnnouncedAndEndJobs runs a sandbox's looks by a clock of the test's. A job keeps it from being idle. Its
// lifetime is announced in the guest and in the log, taken back when it is kept, and ends with SIGTERM for the job, and then
// the guest.
func TestStopsAreAnnouncedAndEndJobs(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.Lifetime, p.IdleStop, p.UpperDisk = time.Hour, time.Minute, "upper"
	must(t, state.WriteJSON(p.Dir, state.StoredFile, state.Stored{Version: state.StoredVersion, Spec: p.Spec}))
	did := make(chan string, 100)
	var clock atomic.Int64
	looks := make(chan time.Time)
	s, info := superviseFake(t, &guestVM{did: func(what string) { did <- what }}, p, func(s *supervisor) {
		s.now = func() time.Time { return after(time.Duration(clock.Load())) }
		s.looks = func() (<-chan time.Time, func()) { return looks, func() {} }
	})
	if info == nil {
		t.Fatal(<-s.ended)
	}
	next := func(want string) {
		t.Helper()
		select {
		case got := <-did:
			if got != want {
				t.Errorf("the guest was asked to %s, want %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("the guest was not asked to %s", want)
		}
	}
	next("remove " + state.StopNotice) // that of a run which was killed
	if _, err := s.jobs.StartJob(t.Context(), "server", agentclient.ExecOptions{Argv: []string{"serve"}}); err != nil {
		t.Fatal(err)
	}
	if u := usageOf(t, s.supervisor); u.Jobs != 1 {
		t.Errorf("%d jobs run", u.Jobs)
	}
	lookAt := func(at time.Duration) {
		t.Helper()
		clock.Store(int64(at))
		for range 3 { // once the third is taken, the second is over, which sees that nobody uses it since the first
			select {
			case looks <- time.Time{}:
			case err := <-s.ended:
				t.Fatalf("it ended at %s: %v", at, err)
			}
		}
	}
	lookAt(0)
	lookAt(10 * time.Minute) // ten times its idle timeout
	lookAt(59*time.Minute + 30*time.Second)
	next("write " + state.StopNotice + ` "1970-01-01T01:00:00Z max-duration\n"`)
	must(t, s.Update([]byte(`{"keep":true}`)))
	lookAt(59*time.Minute + 40*time.Second)
	next("remove " + state.StopNotice)
	lookAt(119*time.Minute + 10*time.Second)
	next("write " + state.StopNotice + ` "1970-01-01T01:59:40Z max-duration\n"`)
	clock.Store(int64(119*time.Minute + 40*time.Second))
	select {
	case looks <- time.Time{}:
	case <-s.ctx.Done(): // by the look before, which read the clock only now
	}
	next("signal 15")
	if err := <-s.ended; !errors.Is(err, state.ErrLifetime) {
		t.Errorf("ended with %v", err)
	}
	for last := ""; last != "shut down"; {
		select {
		case last = <-did:
		default:
			t.Fatal("the guest was not shut down")
		}
	}
	text, err := os.ReadFile(p.Audit)
	must(t, err)
	for want, n := range map[string]int{"sandbox.stopping": 2, "in 30s: max-duration; `msb keep web` starts its time again": 2, "idle-timeout": 0} {
		if got := strings.Count(string(text), want); got != n {
			t.Errorf("the log has %q %d times, want %d", want, got, n)
		}
	}
}

// TestConnectionsToPortsAreUses: a client of a published port keeps a sandbox from being idle.
func TestConnectionsToPortsAreUses(t *testing.T) {
	t.Parallel()
	for proto, asked := range map[string]string{"tcp": "80", "udp": "80/udp"} {
		p := newPlan(t, t.TempDir(), "web")
		p.NoNet = false
		s, info := superviseFake(t, &guestVM{}, p, func(s *supervisor) {
			s.looks = func() (<-chan time.Time, func()) { return nil, func() {} } // they are the test's
		})
		if info == nil {
			t.Fatal(<-s.ended)
		}
		text, err := s.ports.AddPort(asked)
		must(t, err)
		port, err := state.ParsePort(text)
		must(t, err)
		idle := func(from time.Duration) bool {
			s.life.change(after(from), &state.Spec{IdleStop: time.Minute}, true)
			for _, more := range []time.Duration{0, 50 * time.Second} {
				s.lookAtLife(after(from + more))
			}
			return s.life.announced()
		}
		if !idle(0) { // the twin
			t.Errorf("%s: nobody is there, and it is used", proto)
		}
		c, err := net.Dial(proto, fmt.Sprintf("127.0.0.1:%d", port.Host)) // the guest answers nothing
		must(t, err)
		_, err = c.Write([]byte("x"))
		must(t, err)
		for end := time.Now().Add(20 * time.Second); !s.gateway.Used(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: the gateway knows of no client", proto)
			}
		}
		if idle(time.Hour) {
			t.Errorf("%s: it is idle, with a client of its port", proto)
		}
		must(t, c.Close())
		s.cancel(errCallerGone)
		must(t, <-s.ended)
	}
}

// TestNoticesAreTheDocumentedOnes compares them with docs/lifetimes.md.
func TestNoticesAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/lifetimes.md")
	must(t, err)
	for promise, kept := range map[string]bool{
		"30 seconds before (in a shorter time half of it)": stopNotice == 30*time.Second, "each job gets SIGTERM and up to 10 seconds": termWait == 10*time.Second,
		"`/run/msb-stop`": state.StopNotice == "/run/msb-stop",
	} {
		if !kept || !strings.Contains(string(text), promise) {
			t.Errorf("docs/lifetimes.md and the supervisor don't agree: %s", promise)
		}
	}
}
