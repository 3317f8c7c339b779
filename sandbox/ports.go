package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// Ports are those that the sandbox of that name publishes, whether it runs or not. Host is 0 of one that its first start
// will choose.
func (h *Home) Ports(name string) ([]Port, error) {
	st, err := h.load(name)
	if err != nil {
		return nil, Fail(err)
	}
	return st.Ports, nil
}

// AddPort publishes a port of the sandbox of that name: at once if it runs, and at each start. It returns the port with
// what was chosen.
func (h *Home) AddPort(ctx context.Context, name string, p Port) (added Port, err error) {
	err = h.changePorts(ctx, name,
		func(s *Sandbox) error {
			text, err := s.client.AddPort(ctx, p.String())
			if err == nil {
				added, err = ParsePort(text)
			}
			return err
		},
		func(st *state.Stored) error {
			cfg, err := configOf(st)
			if err != nil {
				return err
			}
			st.Ports, added = append(st.Ports, p), p
			return state.CheckPorts(st.Ports, st.NoNet, cfg.Policy, cfg.Floor)
		})
	return added, err
}

// RemovePort ends ports of the sandbox of that name, with their connections, and returns which: those that lead to p's
// Guest, and only from its Host and Address where these are set.
func (h *Home) RemovePort(ctx context.Context, name string, p Port) (removed []Port, err error) {
	err = h.changePorts(ctx, name,
		func(s *Sandbox) error {
			texts, err := s.client.RemovePort(ctx, p.String())
			for _, text := range texts {
				r, e := ParsePort(text)
				removed, err = append(removed, r), errors.Join(err, e)
			}
			return err
		},
		func(st *state.Stored) error {
			st.Ports = slices.DeleteFunc(st.Ports, func(o Port) bool {
				if o.Meant(p) {
					removed = append(removed, o)
				}
				return o.Meant(p)
			})
			if len(removed) == 0 {
				return fmt.Errorf("%w: %s is not published; `msb port ls %s` lists those that are", ErrPort, p, name)
			}
			return nil
		})
	return removed, err
}

// changePorts lets one of the two change the ports of a sandbox: live where it runs, stored where it does not.
func (h *Home) changePorts(ctx context.Context, name string, live func(*Sandbox) error, stored func(*state.Stored) error) error {
	s, err := connectNamed(ctx, h, name)
	if err == nil {
		return Fail(errors.Join(live(s), s.Close()))
	}
	if !errors.Is(err, ErrNotRunning) {
		return Fail(err)
	}
	return Fail(changeNamed(ctx, h, name, func(run *Run, st *state.Stored) error {
		if err := stored(st); err != nil {
			return err
		}
		return state.WriteJSON(run.Dir, state.StoredFile, st)
	}))
}
