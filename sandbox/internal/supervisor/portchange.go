package supervisor

import (
	"fmt"
	"slices"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

var _ agentclient.PortServer = (*ports)(nil)

// AddPort implements agentclient.PortServer.
func (p *ports) AddPort(text string) (string, error) {
	one, err := state.ParsePort(text)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := state.CheckPorts(append(p.opened(), one), p.s.plan.NoNet, p.policyNow(), p.s.floor); err != nil {
		return "", err
	}
	open, err := listenAt(p.s.ctx, p.s.plan.Home, one)
	if err != nil {
		return "", err
	}
	before := p.open
	p.open = append(slices.Clone(p.open), open)
	if err := p.record(); err != nil {
		p.open = before
		open.close()
		return "", err
	}
	p.serve(open)
	return open.String(), nil
}

// RemovePort implements agentclient.PortServer.
func (p *ports) RemovePort(text string) (removed []string, err error) {
	one, err := state.ParsePort(text)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.open
	p.open = slices.DeleteFunc(slices.Clone(p.open), func(o *published) bool { return o.Meant(one) })
	if len(p.open) == len(before) {
		return nil, fmt.Errorf("%w: %s is not published; `msb port ls` lists those that are", state.ErrPort, one)
	}
	if err := p.record(); err != nil {
		p.open = before
		return nil, err
	}
	for _, o := range before {
		if o.Meant(one) {
			o.close()
			removed = append(removed, o.String())
		}
	}
	return removed, nil
}

// record writes the ports down for the next start, and for those who ask.
func (p *ports) record() error {
	if p.s.plan.Name == "" {
		return nil
	}
	if err := p.s.named.keepChoices(); err != nil {
		return err
	}
	return p.s.named.recordRun(func(r *state.RunRecord) {
		if r.Info != nil {
			info := *r.Info
			info.Ports = p.opened()
			r.Info = &info
		}
	})
}

// policyNow is the policy in force.
func (p *ports) policyNow() *policies.Policy {
	if p.s.gateway == nil {
		return p.s.policy
	}
	return p.s.gateway.Policy()
}
