package gateway

import (
	"fmt"
	"slices"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy"
)

// Reload puts p in force for everything from now on, and resets the live flows that it no longer
// allows. On an error the old policy stays in force, whole.
func (g *Gateway) Reload(p *policies.Policy) error {
	g.reload.Lock()
	defer g.reload.Unlock()
	if err := g.install(p, g.proxy.Reload); err != nil {
		g.refused(err)
		return fmt.Errorf("the reload is refused and the old policy stays in force: %w", err)
	}
	g.given = p
	ended := g.revoke() + g.inbound.revokeClients()
	g.emit(audit.Event{Kind: audit.PolicyReload, Action: "allow", Count: uint64(ended), Message: "a new policy is in force"})
	return nil
}

// Grant puts rules in force beside those of the policy and its floor, in place of those that were granted before, and
// resets the live flows that are no longer allowed. No source of a secret is read. A new one that the policy can't have is an
// error, and nothing changes.
func (g *Gateway) Grant(rules []policies.Rule) error {
	g.reload.Lock()
	defer g.reload.Unlock()
	for i := range rules {
		if slices.ContainsFunc(g.granted, func(r policies.Rule) bool { return r.Name == rules[i].Name }) {
			continue
		}
		_, err := policies.WithRule(g.given, rules[i])
		if err == nil && g.cfg.Floor != nil {
			_, err = policies.WithRule(g.cfg.Floor, rules[i])
		}
		if err != nil {
			return err
		}
	}
	before := g.granted
	g.granted = rules
	rejudge := func(p *policies.Policy, j secretproxy.Judge) error { g.proxy.Rejudge(p, j); return nil }
	if err := g.install(g.given, rejudge); err != nil {
		g.granted = before
		return err
	}
	g.revoke()
	return nil
}

// refused writes down that a new policy was not taken.
func (g *Gateway) refused(err error) {
	g.emit(audit.Event{Kind: audit.PolicyReload, Action: "deny", Message: "the reload is refused and the old policy stays in force: " + err.Error()})
}

// install compiles p and puts it in force, in the proxy by proxy.
func (g *Gateway) install(p *policies.Policy, proxy func(*policies.Policy, secretproxy.Judge) error) error {
	p, rules, err := g.compile(p)
	if err != nil {
		return err
	}
	guard, err := g.guard.Prepare(p, rules.Engine)
	if err != nil {
		return err
	}
	// The last that can fail: it reads the secrets' sources.
	if err := proxy(p, rules.Engine); err != nil {
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
