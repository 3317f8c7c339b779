package gateway

import (
	"fmt"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/policies"
)

// Reload puts p in force for everything from now on, and resets the live flows that it no longer
// allows. On an error the old policy stays in force, whole.
func (g *Gateway) Reload(p *policies.Policy) error {
	g.reload.Lock()
	defer g.reload.Unlock()
	if err := g.install(p); err != nil {
		g.refused(err)
		return fmt.Errorf("the old policy stays in force: %w", err)
	}
	ended := g.revoke()
	g.emit(audit.Event{Kind: audit.PolicyReload, Action: "allow", Count: uint64(ended), Message: "a new policy is in force"})
	return nil
}

// refused writes down that a new policy was not taken.
func (g *Gateway) refused(err error) {
	g.emit(audit.Event{Kind: audit.PolicyReload, Action: "deny", Message: "the old policy stays in force: " + err.Error()})
}

func (g *Gateway) install(p *policies.Policy) error {
	p, engine, err := g.compile(p)
	if err != nil {
		return err
	}
	old, oldEngine := g.policy.Load(), g.engine.Load()
	// The proxy first: it reads the secrets' sources, which can fail.
	if err := g.proxy.Reload(p, engine); err != nil {
		return err
	}
	if err := g.guard.Reload(p, engine); err != nil {
		if back := g.proxy.Reload(old, oldEngine); back != nil {
			return fmt.Errorf("%w (and the old one could not be restored in the proxy: %w)", err, back)
		}
		return err
	}
	g.policy.Store(p)
	g.engine.Store(engine)
	g.budget.set(p.Limits.EgressBytes)
	g.stack.SetLimits(linkLimits(g.cfg.Link.Limits, p))
	return nil
}

// revoke ends the flows that the engine in force no longer lets through as they are.
func (g *Gateway) revoke() int {
	engine, ended := g.engine.Load(), 0
	for _, f := range g.flows.snapshot() {
		if !g.stays(engine, f) {
			f.cancel(errRevoked)
			ended++
		}
	}
	return ended
}

// stays reports whether engine lets a live flow go on as it is.
func (g *Gateway) stays(engine *egress.Engine, f *flow) bool {
	if f.Mapped && !g.sameTarget(f) {
		return false
	}
	return keeps(f.verdict.Action, engine.Decide(&f.Flow).Action)
}

// keeps reports whether a flow that runs under one action may go on when the new policy gives it
// another. An inspected flow is judged request by request, so a mere Allow keeps it; a relayed one that
// must be looked into from now on can't be.
func keeps(running, now egress.Action) bool {
	switch now {
	case egress.Deny:
		return false
	case egress.Allow:
		return true
	case egress.Peek, egress.Inspect:
		return running == egress.Inspect
	}
	return false
}

// sameTarget reports whether [hosts] still leads where f goes.
func (g *Gateway) sameTarget(f *flow) bool {
	m, ok := g.guard.Mapped(f.Dst.Addr())
	return ok && m.Name == f.mapping.Name && m.Target == f.mapping.Target
}
