package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
)

const (
	// usageWait bounds how long one supervisor may take to answer: one that hangs holds up no other's figures.
	usageWait = 5 * time.Second
	// usageAtOnce is how many supervisors are asked at once.
	usageAtOnce = 8
)

// Usage is what the sandboxes of these names use, in their order; without names those that run, in the order of their
// names. One that does not answer, or not yet, has a Problem. ErrNoSandbox and ErrNotRunning are of names alone.
func (h *Home) Usage(ctx context.Context, names ...string) ([]Usage, error) {
	asked := len(names) > 0
	if !asked {
		list, err := h.List()
		if err != nil {
			return nil, Fail(err)
		}
		for i := range list {
			if list[i].Running {
				names = append(names, list[i].Name)
			}
		}
	}
	all := make([]Usage, len(names))
	gone := make([]bool, len(names))
	var work errgroup.Group
	work.SetLimit(usageAtOnce)
	for i, name := range names {
		work.Go(func() error {
			err := usageOf(h, ctx, name, &all[i])
			switch missing := errors.Is(err, ErrNoSandbox) || errors.Is(err, ErrNotRunning) || errors.Is(err, ErrName); {
			case missing && asked:
				return err
			case missing: // ended just now
				gone[i] = true
			case err != nil:
				all[i] = Usage{Name: name, Problem: err.Error()}
			}
			return ctx.Err()
		})
	}
	if err := work.Wait(); err != nil {
		return nil, Fail(err)
	}
	kept := all[:0]
	for i := range all {
		if !gone[i] {
			kept = append(kept, all[i])
		}
	}
	return kept, nil
}

// Usage is what this sandbox uses.
func (s *Sandbox) Usage(ctx context.Context) (*Usage, error) {
	u := new(Usage)
	if err := s.client.Usage(ctx, u); err != nil {
		return nil, Fail(err)
	}
	return u, nil
}

// usageOf asks a supervisor over a session of its own, which does not wait for one that is starting.
func usageOf(h *Home, ctx context.Context, name string, u *Usage) error {
	if _, err := loadStored(h, name); err != nil {
		return err
	}
	dir := namedPath(h, name)
	conn, err := state.DialControl(dir)
	if err != nil {
		return notRunning(name)
	}
	var r state.RunRecord
	if state.ReadJSON(dir, state.InfoFile, &r) != nil || r.Info == nil {
		return errors.Join(errStarting, conn.Close())
	}
	client, err := agentclient.Attach(conn)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	defer func() { _ = client.Close() }() // its only error is that the stream is closed already
	wait := cmp.Or(h.answer, usageWait)
	asked, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err = client.Usage(asked, u)
	if err != nil && asked.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: its supervisor did not answer within %s", agentclient.ErrTimeout, wait)
	}
	u.Name = name
	return err
}

var errStarting = errors.New("it is starting")
