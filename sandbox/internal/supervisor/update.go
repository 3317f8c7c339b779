package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// Update implements agentclient.SupervisorServer.
func (s *supervisor) Update(text []byte) error {
	var c state.Changes
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // of a later msb, which would believe that they were made
	if err := d.Decode(&c); err != nil {
		return err
	}
	switch {
	case c.Ask != nil:
		return s.access.ask(c.Ask)
	case c.Answer != nil:
		return s.access.answer(c.Answer)
	}
	if c.Paused != nil {
		if err := s.pause.set(*c.Paused); err != nil {
			return err
		}
	}
	var now state.Spec
	err := s.named.changeStored(func(st *state.Stored) bool {
		c.Apply(st)
		now = st.Spec
		return true
	})
	if err != nil {
		return err
	}
	s.life.change(s.now(), &now, c.Keep)
	s.jobs.SetRestart(now.Restart)
	return nil
}

// changeStored lets do change the state of a sandbox with a name; do reports whether it did. Nobody else writes it while
// the sandbox runs.
func (n *named) changeStored(do func(*state.Stored) bool) error {
	n.storedMu.Lock()
	defer n.storedMu.Unlock()
	st, err := state.ReadStored(n.s.plan.Dir, n.s.plan.Name)
	if err != nil || !do(st) {
		return err
	}
	return state.WriteJSON(n.s.plan.Dir, state.StoredFile, st)
}

// beginLife starts the clocks by which the sandbox ends by itself.
func (s *supervisor) beginLife() error {
	var ran time.Duration
	if s.plan.Name != "" {
		st, err := state.ReadStored(s.plan.Dir, s.plan.Name)
		if err != nil {
			return err
		}
		ran = st.Ran
	}
	s.life.begin(s.now(), &s.plan.Spec, ran, s.plan.Again != nil)
	if s.plan.Lifetime > 0 || s.plan.IdleStop > 0 { // one that a kill left
		ctx, cancel := context.WithTimeout(s.ctx, noticeWait)
		defer cancel()
		_ = s.takeBackNotice(ctx) // a new one replaces it
	}
	return nil
}

// saveRan writes the running time down for the next start.
func (n *named) saveRan() error {
	return n.changeStored(n.keepRan)
}

func (n *named) keepRan(st *state.Stored) bool {
	if st.Lifetime == 0 {
		return false
	}
	st.Ran = n.s.life.ranBy(n.s.now())
	return true
}
