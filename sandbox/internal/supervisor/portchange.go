package supervisor

import (
	"fmt"
	"slices"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

var _ agentclient.PortServer = (*supervisor)(nil)

// AddPort implements agentclient.PortServer.
func (s *supervisor) AddPort(text string) (string, error) {
	p, err := state.ParsePort(text)
	if err != nil {
		return "", err
	}
	s.portsMu.Lock()
	defer s.portsMu.Unlock()
	if err := state.CheckPorts(append(s.openedPorts(), p), s.plan.NoNet, s.policyNow(), s.floor); err != nil {
		return "", err
	}
	open, err := listenAt(s.ctx, s.plan.Home, p)
	if err != nil {
		return "", err
	}
	before := s.ports
	s.ports = append(slices.Clone(s.ports), open)
	if err := s.recordPorts(); err != nil {
		s.ports = before
		open.close()
		return "", err
	}
	s.servePort(open)
	return open.String(), nil
}

// RemovePort implements agentclient.PortServer.
func (s *supervisor) RemovePort(text string) (removed []string, err error) {
	p, err := state.ParsePort(text)
	if err != nil {
		return nil, err
	}
	s.portsMu.Lock()
	defer s.portsMu.Unlock()
	before := s.ports
	s.ports = slices.DeleteFunc(slices.Clone(s.ports), func(o *published) bool { return o.Meant(p) })
	if len(s.ports) == len(before) {
		return nil, fmt.Errorf("%w: %s is not published; `msb port ls` lists those that are", state.ErrPort, p)
	}
	if err := s.recordPorts(); err != nil {
		s.ports = before
		return nil, err
	}
	for _, o := range before {
		if o.Meant(p) {
			o.close()
			removed = append(removed, o.String())
		}
	}
	return removed, nil
}

// recordPorts writes the ports down for the next start, and for those who ask.
func (s *supervisor) recordPorts() error {
	if s.plan.Name == "" {
		return nil
	}
	if err := s.keepChoices(); err != nil {
		return err
	}
	return s.recordRun(func(r *state.RunRecord) {
		if r.Info != nil {
			info := *r.Info
			info.Ports = s.openedPorts()
			r.Info = &info
		}
	})
}

// policyNow is the policy in force.
func (s *supervisor) policyNow() *policies.Policy {
	if s.gateway == nil {
		return s.policy
	}
	return s.gateway.Policy()
}
