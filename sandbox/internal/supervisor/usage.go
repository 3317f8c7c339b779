package supervisor

import (
	"context"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/sandbox/internal/state"
)

var _ agentclient.SupervisorServer = (*supervisor)(nil)

// guestUsageWait bounds how long the guest may take to say what it uses: the other figures don't wait for it.
const guestUsageWait = 2 * time.Second

// Usage implements agentclient.SupervisorServer.
func (s *supervisor) Usage(ctx context.Context) any {
	u := &state.Usage{
		Name: s.plan.ID, Started: s.started, Running: time.Since(s.begun), CPUs: s.plan.CPUs, Memory: s.plan.Memory,
		Jobs: s.jobs.Running(), Guest: guestUsage(ctx, s),
	}
	u.CPU, u.Resident = processUsage(s.machine.PID())
	if s.plan.UpperDisk != "" {
		u.Disk, u.DiskUsed = diskUsage(s.plan.UpperDisk)
	}
	if s.gateway != nil {
		st := s.gateway.Stats()
		u.Gateway = gatewayUsage(&st)
	}
	return u
}

// guestUsage is what the guest says that it uses; nil if it is paused or says nothing.
func guestUsage(ctx context.Context, s *supervisor) *state.GuestUsage {
	if s.pause.on.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, guestUsageWait)
	defer cancel()
	st, err := s.agent.Stats(ctx)
	if err != nil {
		return nil
	}
	return guestFigures(st, s.plan.Memory)
}

// guestFigures are what a guest with that much memory, in bytes, can use: it may say anything.
func guestFigures(st agentclient.Stats, memory int64) *state.GuestUsage {
	u := &state.GuestUsage{Processes: st.Processes, OOMKills: max(0, st.OOMKills)}
	if st.MemoryAvailableBytes >= 0 && st.MemoryAvailableBytes <= st.MemoryTotalBytes {
		u.MemoryUsed = min(st.MemoryTotalBytes-st.MemoryAvailableBytes, memory)
	}
	return u
}

func gatewayUsage(g *gateway.Stats) *state.GatewayUsage {
	u := &state.GatewayUsage{
		BytesUp: g.Link.BytesFromGuest, BytesDown: g.Link.BytesToGuest, FramesUp: g.Link.FramesFromGuest, FramesDown: g.Link.FramesToGuest,
		FramesDropped: map[string]int64{}, Limits: map[string]int64{},
		Flows: g.Link.TCPConnections + g.Link.UDPFlows, Clients: g.Clients, Opened: g.Opened, WouldDeny: g.WouldDeny,
		DNS: state.DNSUsage{
			Queries: g.DNS.Queries, Cached: g.DNS.Cached, Refused: g.DNS.Refused, Rebinding: g.DNS.Rebinding, Failed: g.DNS.Failed, Limited: g.DNS.Limited,
		},
		Requests: g.Proxy.Requests, Swaps: g.Proxy.Swaps, Masked: g.Proxy.Masked, Violations: g.Proxy.Violations,
		EgressBytes: g.EgressUsed, EgressLimit: g.EgressLimit, SecretMemory: g.Proxy.Held, Full: g.Proxy.Full,
	}
	for reason, n := range g.Link.Drops {
		u.FramesDropped[string(reason)] = n
	}
	for kind, n := range g.Link.Limited {
		u.Limits[string(kind)] = n
	}
	for _, d := range g.Denied {
		u.Denied = append(u.Denied, state.DeniedUsage{Kind: string(d.Kind), Reason: d.Reason, Count: d.Count})
	}
	return u
}
