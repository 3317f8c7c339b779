package supervisor

import (
	"context"
	"errors"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI13_CallersEndWhatIsNotReady and nothing else: the caller may be killed while a sandbox with a name becomes ready.
func TestI13_CallersEndWhatIsNotReady(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ gone, attached, ends bool }{{true, false, true}, {false, false, false}, {false, true, true}} {
		s := newSupervisor(&state.Plan{Attached: tc.attached}, nil, nil)
		s.ctx, s.cancel = context.WithCancelCause(t.Context())
		if tc.gone {
			s.caller.ended()
		}
		if err := s.caller.leave(); errors.Is(err, errCallerGone) != tc.gone || s.caller.detached.Load() == tc.gone {
			t.Errorf("%+v: %v, detached %t", tc, err, s.caller.detached.Load())
		}
		s.caller.ended()
		if ended := s.ctx.Err() != nil; ended != tc.ends {
			t.Errorf("%+v: ended %t", tc, ended)
		}
		s.cancel(nil)
	}
}

// TestI12_HangUpsHideNoGuestsEnd has callers hang up because their guest has ended: that they are gone is not why the
// sandbox ends. Who hangs up while the guest lives ends it.
func TestI12_HangUpsHideNoGuestsEnd(t *testing.T) {
	t.Parallel()
	for _, lives := range []bool{true, false} {
		conn, guest, err := state.SocketPair()
		if err != nil {
			t.Fatal(err)
		}
		defer guest.Close()
		agent, err := agentclient.Attach(conn)
		if err != nil {
			t.Fatal(err)
		}
		defer agent.Close()
		s := newSupervisor(&state.Plan{}, nil, nil)
		s.ctx, s.cancel = context.WithCancelCause(t.Context())
		s.greeted.Store(agent)
		if !lives {
			must(t, guest.Close())
			_, err := agent.Stats(t.Context()) // as the caller's call, which breaks off
			if err == nil {
				t.Error("a guest that has ended answers")
			}
		}
		s.caller.ended()
		if ended := s.ctx.Err() != nil; ended != lives {
			t.Errorf("the guest lives: %t, the caller's end ends the sandbox: %t", lives, ended)
		}
		s.cancel(nil)
	}
}
