package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Update changes the sandbox of that name. What does not hold at once holds from its next start on; see Changes.
func (h *Home) Update(ctx context.Context, name string, c Changes) error {
	st, err := loadStored(h, name)
	if err != nil {
		return Fail(err)
	}
	if err := checkChanges(st, &c); err != nil {
		return Fail(err)
	}
	s, err := connectNamed(ctx, h, name)
	if err == nil {
		text, err := json.Marshal(c)
		if err == nil {
			err = s.client.Update(ctx, text)
		}
		return Fail(errors.Join(answered(name, err), s.Close()))
	}
	if !errors.Is(err, ErrNotRunning) || c.Paused != nil {
		return Fail(err)
	}
	return Fail(changeStopped(ctx, h, name, err, func(run *runDir, st *state.Stored) error {
		if err := checkChanges(st, &c); err != nil {
			return err
		}
		c.Apply(st)
		return state.WriteJSON(run.dir, state.StoredFile, st)
	}))
}

// Keep starts the time of a sandbox's Lifetime and IdleStop again: a stop that was announced does not come.
func (h *Home) Keep(ctx context.Context, name string) error {
	return h.Update(ctx, name, Changes{Keep: true})
}

// Pause stops the guest of a sandbox that runs where it is, until Resume or Stop: its processes get no time, its memory
// stays. Meanwhile ErrPaused is the answer to what needs the guest. One that is paused already is no error.
func (h *Home) Pause(ctx context.Context, name string) error {
	paused := true
	return h.Update(ctx, name, Changes{Paused: &paused})
}

// Resume lets the guest of a paused sandbox go on. One that is not paused is no error.
func (h *Home) Resume(ctx context.Context, name string) error {
	paused := false
	return h.Update(ctx, name, Changes{Paused: &paused})
}

// checkChanges refuses what Create would, of st as it would be.
func checkChanges(st *state.Stored, c *Changes) error {
	for key := range c.Labels {
		if key == "" {
			return fmt.Errorf("%w: a label without a key; write KEY=VALUE", ErrConfig)
		}
	}
	next := *st
	c.Apply(&next)
	cfg := Config{
		Name: next.Name, CPUs: next.CPUs, Memory: next.Memory, Restart: next.Restart, AutoRemove: next.AutoRemove, IdleStop: next.IdleStop, Lifetime: next.Lifetime,
		Policy: policies.Default(), Backend: vm.Auto,
	}
	return cfg.check()
}
