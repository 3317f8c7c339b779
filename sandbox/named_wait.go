package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// WaitEnd waits until the current run of the sandbox of that name is over, even if others follow: nil after a stop, an
// error with its Kind if it ended by itself (KindIdle and KindLifetime among them), ErrSupervisor if its supervisor was
// killed. ErrNotRunning if there is no run. For Config.IdleStop it doesn't count as use of the sandbox.
func (h *Home) WaitEnd(ctx context.Context, name string) error { return Fail(waitEnd(ctx, h, name)) }

func waitEnd(ctx context.Context, h *Home, name string) error {
	if _, err := loadStored(h, name); err != nil {
		return err
	}
	dir := namedPath(h, name)
	conn, err := state.DialControl(dir)
	if err != nil {
		return notRunning(name)
	}
	return waitFor(ctx, h, name, conn)
}

// waitFor is WaitEnd for the run of which conn is.
func waitFor(ctx context.Context, h *Home, name string, conn net.Conn) error {
	dir, began := namedPath(h, name), time.Now()
	var r state.RunRecord
	if state.ReadJSON(dir, state.InfoFile, &r) == nil {
		began = r.Started
	}
	if err := state.PeerGone(ctx, conn); err != nil {
		return err
	}
	const look = 50 * time.Millisecond
	for r.Supervisor.PID != 0 && r.Supervisor.Gone(look) != nil { // it closes its connections before it ends
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	var end End
	err := state.ReadJSON(dir, state.EndFile, &end)
	if _, gone := os.Lstat(dir); errors.Is(gone, fs.ErrNotExist) { // Config.AutoRemove
		return nil
	}
	if err != nil || end.Time.Before(began.Truncate(time.Second)) { // of a run before
		return fmt.Errorf("%w: sandbox %s; `msb start %s` starts it again", ErrSupervisor, name, name)
	}
	if end.Message != "" {
		return state.FailAs(end.Kind, fmt.Errorf("sandbox %s ended: %s", name, end.Message))
	}
	return nil
}
