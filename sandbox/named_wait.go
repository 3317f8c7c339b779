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

// WatchEnd returns what waits until the present run of the sandbox of that name is over, even if others follow: nil after
// a stop, an error with its Kind if it ended by itself (KindIdle and KindLifetime among them), ErrSupervisor if its
// supervisor was killed. ErrNotRunning if there is no run. For Config.IdleStop neither counts as use of the sandbox.
func (h *Home) WatchEnd(name string) (wait func(context.Context) error, err error) {
	if _, err := loadStored(h, name); err != nil {
		return nil, Fail(err)
	}
	conn, err := state.DialControl(namedPath(h, name))
	if err != nil {
		return nil, Fail(notRunning(name))
	}
	over, err := watchEnd(h, name, conn)
	if err != nil {
		return nil, Fail(err)
	}
	return func(ctx context.Context) error { return Fail(over(ctx)) }, nil
}

// watchEnd is WatchEnd for the run of which conn is.
func watchEnd(h *Home, name string, conn net.Conn) (wait func(context.Context) error, err error) {
	dir, began := namedPath(h, name), time.Now()
	var r state.RunRecord
	if state.ReadJSON(dir, state.InfoFile, &r) == nil {
		began = r.Started
	}
	gone, err := state.WatchPeer(conn)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := gone(ctx); err != nil {
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
	}, nil
}
