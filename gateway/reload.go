package gateway

import (
	"fmt"

	"github.com/msb-project/msb/audit"
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
	ended := g.revoke() + g.inbound.revokeClients()
	g.emit(audit.Event{Kind: audit.PolicyReload, Action: "allow", Count: uint64(ended), Message: "a new policy is in force"})
	return nil
}

// refused writes down that a new policy was not taken.
func (g *Gateway) refused(err error) {
	g.emit(audit.Event{Kind: audit.PolicyReload, Action: "deny", Message: "the old policy stays in force: " + err.Error()})
}

func (g *Gateway) install(p *policies.Policy) error {
	p, rules, err := g.compile(p)
	if err != nil {
		return err
	}
	guard, err := g.guard.Prepare(p, rules.Engine)
	if err != nil {
		return err
	}
	// The last that can fail: it reads the secrets' sources.
	if err := g.proxy.Reload(p, rules.Engine); err != nil {
		guard.Discard()
		return err
	}
	guard.Install()
	g.policy.Store(p)
	g.rules.Store(rules)
	g.budget.set(p.Limits.EgressBytes)
	g.stack.SetLimits(linkLimits(g.cfg.Link.Limits, p))
	return nil
}

// revoke ends the flows that the rules in force no longer let through as they are, or that carry a request
// which they refuse.
func (g *Gateway) revoke() int {
	rules, ended := g.rules.Load(), 0
	for _, f := range g.flows.all() {
		if f.revise(rules) {
			ended++
		}
	}
	return ended
}
