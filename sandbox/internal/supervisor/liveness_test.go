package supervisor

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
)

// looked is a supervisor that looks at its guest when a test says so.
type looked struct {
	*supervised
	looks chan time.Time
}

func superviseLooks(t *testing.T, g *guestVM, change ...func(*supervisor)) *looked {
	t.Helper()
	looks := make(chan time.Time)
	s, info := superviseFake(t, g, newPlan(t, t.TempDir(), "web"), append(change, func(s *supervisor) {
		s.looks = func() (<-chan time.Time, func()) { return looks, func() {} }
	})...)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	return &looked{s, looks}
}

// look has it look n times. The last look is over with the next one, or with the sandbox, of which over is the error.
func (l *looked) look(n int) (alive bool, over error) {
	for range n {
		select {
		case l.looks <- time.Time{}:
		case err := <-l.ended:
			return false, err
		}
	}
	return true, nil
}

func (l *looked) end(t *testing.T) {
	t.Helper()
	l.cancel(errCallerGone)
	must(t, <-l.ended)
}

// TestI13_HaltedMachinesEndTheirSandboxes: the VMM of a guest that halted runs on. The twin's console has another word.
func TestI13_HaltedMachinesEndTheirSandboxes(t *testing.T) {
	t.Parallel()
	for word, halts := range map[string]bool{"reboot: System halted": true, "Power off not available: System halted instead": true, "the system halted": false} {
		l := superviseLooks(t, &guestVM{last: "[ 1.0] " + word + strings.Repeat("\r\n", 100)})
		alive, err := l.look(2)
		if alive == halts || halts && (!errors.Is(err, agentclient.ErrAgentDead) || !errors.Is(err, errHalted)) {
			t.Errorf("%q: alive %t, %v", word, alive, err)
		}
		if alive {
			l.end(t)
		}
	}
}

// TestClocksAreKeptWhileASandboxRuns: the guest's clock is looked at from time to time, and at once when a paused guest goes
// on. One that stands still is asked nothing.
func TestClocksAreKeptWhileASandboxRuns(t *testing.T) {
	t.Parallel()
	g := &guestVM{behind: &atomic.Int64{}}
	l := superviseLooks(t, g)
	step := func(what string, looks int, kept bool) {
		t.Helper()
		if alive, err := l.look(looks); !alive {
			t.Fatalf("%s: it ended: %v", what, err)
		}
		if off := time.Duration(g.behind.Load()).Abs(); (off < time.Minute) != kept {
			t.Errorf("%s: %s off, want kept %t", what, off, kept)
		}
	}
	later := func() { g.behind.Store(int64(time.Hour)) }
	later()
	step("just before it is asked", livenessAsk, false)
	step("asked", 1, true)
	later()
	must(t, l.pause.set(true))
	step("paused", 2*livenessAsk, false)
	must(t, l.pause.set(false))
	step("resumed", 2, true)
	later()
	l.memory.held.Store(true)
	step("held for a snapshot", 2*livenessAsk, false)
	l.memory.held.Store(false)
	step("it goes on", livenessAsk+1, true)
	l.end(t)
}

// TestI13_SilentGuestsEndTheirSandboxes: the VMM lives and the agent's stream stays open. The twins are guests that stand
// still since they were asked.
func TestI13_SilentGuestsEndTheirSandboxes(t *testing.T) {
	t.Parallel()
	for what, meanwhile := range map[string]func(*supervisor){
		"silent": nil,
		"paused": func(s *supervisor) { s.pause.on.Store(true) },
		"held":   func(s *supervisor) { s.memory.held.Store(true) },
	} {
		var silent atomic.Bool
		over, lose := context.WithCancel(t.Context())
		var s *supervisor
		g := &guestVM{behind: &atomic.Int64{}}
		g.stats = func() {
			if silent.Load() {
				if meanwhile != nil {
					meanwhile(s)
				}
				lose() // the patience with it
				<-g.done
			}
		}
		l := superviseLooks(t, g, func(made *supervisor) {
			s = made
			s.patience = func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				context.AfterFunc(over, cancel)
				return ctx, cancel
			}
		})
		silent.Store(true)
		alive, err := l.look(livenessAsk + 1)
		if alive != (meanwhile != nil) || !alive && (!errors.Is(err, agentclient.ErrAgentDead) || !strings.Contains(err.Error(), "no sign of life")) {
			t.Errorf("%s: alive %t, %v", what, alive, err)
		}
		if alive {
			l.end(t)
		}
		lose()
	}
}
