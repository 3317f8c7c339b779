package supervisor

import (
	"context"
	"errors"
	"testing"

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
