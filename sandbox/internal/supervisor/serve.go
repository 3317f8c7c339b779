package supervisor

import (
	"context"
	"errors"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/handoff"
	"github.com/msb-project/msb/sandbox/internal/state"
)

func (s *supervisor) announce() error {
	info := &state.Info{
		ID: s.plan.ID, Backend: s.backend.Name(), CPUs: s.plan.CPUs, Memory: s.plan.Memory,
		Kernel: s.agent.Info().Kernel, Warnings: s.agent.Info().Warnings,
		Confinement: s.machine.Confinement(), Restored: s.machine.Restored(), Resumed: s.memory.from != nil,
	}
	if s.gateway != nil {
		info.Placeholders = s.gateway.Placeholders()
		info.Warnings = append(info.Warnings, s.gateway.Warnings()...)
	}
	info.Ports = s.ports.opened()
	if err := s.named.detach(info); err != nil {
		return err
	}
	err := s.out.Write(state.StatusLine{Ready: info})
	if s.caller.detached.Load() { // caller.watch handles a caller that was killed just now
		return nil
	}
	return err
}

// serve answers the caller until it goes, the machine ends or the policy ends the sandbox.
func (s *supervisor) serve() error {
	s.work.Go(s.watchGuest)
	also := agentclient.Services{Jobs: s.jobs, Ports: &s.ports, Supervisor: s, SSH: sshGuest{s}.serve, Save: s.memory.save, Tell: s.execEvent, Use: s.life.call, Transfer: s.transfer.host(), Refuse: s.pause.refuse}
	if s.plan.Containers {
		also.Containers = agentclient.NewContainerDirectories(func(d agentclient.HostDirectory) (uint32, func(), error) { return offerDirectory(s, d) })
	}
	if s.control != nil {
		caller := handoff.Of(s.control)
		s.work.Go(func() { _ = agentclient.Serve(s.ctx, caller, s.agent, also) })
	}
	if s.named.listener != nil {
		s.work.Go(func() { _ = agentclient.Serve(s.ctx, s.named.listener, s.agent, also) })
	}
	select {
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-s.machine.Done():
		return s.guestGone(s.endCause(agentclient.ErrAgentDead))
	case <-s.agent.Done():
		if err := s.agent.Err(); !errors.Is(err, agentclient.ErrAgentDead) { // a guest that breaks the protocol gets no other machine
			return s.endCause(err)
		}
		return s.guestGone(s.endCause(s.agent.Err()))
	}
}
