package supervisor

import (
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
	if err := p.change(append(slices.Clone(p.open), open)); err != nil {
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
	left := slices.DeleteFunc(slices.Clone(p.open), func(o *published) bool { return o.Meant(one) })
	if len(left) == len(before) {
		return nil, state.NotPublished(one, p.s.plan.Name)
	}
	if err := p.change(left); err != nil {
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

// change has these ports open, once they are written down. An error changes nothing.
func (p *ports) change(open []*published) error {
	before := p.open
	p.open = open
	err := p.record()
	if err != nil {
		p.open = before
		_ = p.record() // the next record has it, if this one can't be written either
	}
	return err
}

// record writes the ports down for those who ask, and for the next start. That comes last: what fails before it is not
// published then.
func (p *ports) record() error {
	if p.s.plan.Name == "" {
		return nil
	}
	err := p.s.named.recordRun(func(r *state.RunRecord) {
		if r.Info != nil {
			info := *r.Info
			info.Ports = p.opened()
			r.Info = &info
		}
	})
	if err != nil {
		return err
	}
	return p.s.named.keepChoices()
}

// policyNow is the policy in force.
func (p *ports) policyNow() *policies.Policy {
	if p.s.gateway == nil {
		return p.s.policy
	}
	return p.s.gateway.Policy()
}
