package sandbox

import (
	"context"
	"errors"
	"slices"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// Ports are the ports that the sandboxes of a state directory publish.
type Ports struct{ home *Home }

// Ports are those of h's sandboxes.
func (h *Home) Ports() Ports { return Ports{h} }

// List returns the ports that the sandbox of that name publishes, whether it runs or not. Host is 0 if the first start
// chooses it.
func (ps Ports) List(name string) ([]Port, error) {
	st, err := loadStored(ps.home, name)
	if err != nil {
		return nil, Fail(err)
	}
	return st.Ports, nil
}

// Add publishes a port of the sandbox of that name: at once if it runs, and at each start. It returns the port with the
// chosen Host.
func (ps Ports) Add(ctx context.Context, name string, p Port) (added Port, err error) {
	err = ps.change(ctx, name,
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

// Remove ends ports of the sandbox of that name, with their connections, and returns them: those that lead to p's Guest,
// and only from its Host and Address if these are set.
func (ps Ports) Remove(ctx context.Context, name string, p Port) (removed []Port, err error) {
	err = ps.change(ctx, name,
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
				return state.NotPublished(p, name)
			}
			return nil
		})
	return removed, err
}

// change changes the ports of a sandbox: live if it runs, stored if it doesn't.
func (ps Ports) change(ctx context.Context, name string, live func(*Sandbox) error, stored func(*state.Stored) error) error {
	s, err := connectNamed(ctx, ps.home, name)
	if err == nil {
		return Fail(errors.Join(answered(name, live(s)), s.Close()))
	}
	if !errors.Is(err, ErrNotRunning) {
		return Fail(err)
	}
	return Fail(changeStopped(ctx, ps.home, name, err, func(run *runDir, st *state.Stored) error {
		if err := stored(st); err != nil {
			return err
		}
		return state.WriteJSON(run.dir, state.StoredFile, st)
	}))
}
