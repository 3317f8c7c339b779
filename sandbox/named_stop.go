package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// Stop ends the run of the named sandbox: its guest writes back what it holds, and leaves. ErrNotRunning if there is
// no run. Inspect reports what the run could not record.
func (h *Home) Stop(ctx context.Context, name string) error { return Fail(stopNamed(ctx, h, name)) }

func stopNamed(ctx context.Context, h *Home, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := checkRealDir(h, name); err != nil {
		return err
	}
	var r state.RunRecord
	conn, err := state.DialControl(namedPath(h, name))
	if err == nil && !h.made.IsZero() {
		if _, err := loadStored(h, name); err != nil { // of the sandbox behind conn, or of a later one
			return errors.Join(err, conn.Close())
		}
	}
	if err == nil {
		ready := state.ReadJSON(namedPath(h, name), state.InfoFile, &r) == nil && r.Info != nil
		if err := state.EndPeer(ctx, conn, state.StopWait); err != nil {
			return err // one that was killed wrote nothing down
		}
		// Its connections close before it ends, and when it executes itself again for a crashed guest: no signal reached it then.
		if err := r.Supervisor.End(ctx, state.StopWait); err != nil && r.Supervisor.Gone(0) != nil {
			return err
		}
		return checkEnd(h, name, ready && !r.AutoRemove)
	}
	if run, err := lockNamed(h, name); !errors.Is(err, ErrRunning) || state.ReadJSON(namedPath(h, name), state.InfoFile, &r) != nil {
		if run != nil {
			_ = run.lock.Close()
		}
		return notRunning(name)
	}
	if !h.made.IsZero() {
		if _, err := loadStored(h, name); err != nil { // of the sandbox whose record that is, or of a later one
			return err
		}
	}
	return r.Supervisor.End(ctx, state.StopWait) // somebody removed the socket under it
}

// checkEnd checks that a run that was ready has stored how it ended, for the next start and msb ls.
func checkEnd(h *Home, name string, ready bool) error {
	var end End
	if err := state.ReadJSON(namedPath(h, name), state.EndFile, &end); ready && err != nil {
		return fmt.Errorf("sandbox %s ended; how it ended could not be recorded in %s, which is full or can't be written to: %w", name, namedPath(h, name), err)
	}
	return nil
}
