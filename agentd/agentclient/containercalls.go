package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// Containers are the containers of a guest.
type Containers struct{ c *Client }

// Containers are those of the guest.
func (c *Client) Containers() Containers { return Containers{c} }

// ContainerExec is a process of a container, for ExecOptions.
type ContainerExec struct {
	// ID is the container's. ExecID is "" for the process that Create made; others have a Process.
	ID, ExecID string
	Process    *ContainerProcess
	// OnPID is called with the process's number once it runs, before any output; nil for none.
	OnPID func(pid uint32)
}

// Create makes a container, whose first process waits for Exec, and returns that process's number. It is for
// clients of Serve, which serves the directories.
func (s Containers) Create(ctx context.Context, cfg *ContainerConfig, files []bool) (pid uint32, err error) {
	r, err := s.c.containers.Create(ctx, cfg.message(files))
	return r.GetPid(), s.c.callError(ctx, err)
}

// Signal sends a signal to a process, or to all of a container; false if there was none any more.
func (s Containers) Signal(ctx context.Context, id, execID string, sig Signal, all bool) (bool, error) {
	r, err := s.c.containers.Signal(ctx, &agentpb.SignalContainerRequest{Container: id, ExecId: execID, Signal: uint32(sig), All: all})
	return !r.GetGone(), s.c.callError(ctx, err)
}

// Update changes the limits that are not zero.
func (s Containers) Update(ctx context.Context, id string, r ContainerResources) error {
	_, err := s.c.containers.Update(ctx, &agentpb.UpdateContainerRequest{Container: id, Limits: r.message()})
	return s.c.callError(ctx, err)
}

// Pause holds the processes of a container still, or lets them go on.
func (s Containers) Pause(ctx context.Context, id string, resume bool) error {
	_, err := s.c.containers.Pause(ctx, &agentpb.PauseContainerRequest{Container: id, Resume: resume})
	return s.c.callError(ctx, err)
}

// Stats returns figures and processes of a container. It is the guest's word only.
func (s Containers) Stats(ctx context.Context, id string) (ContainerStats, []uint32, error) {
	r, err := s.c.containers.Stats(ctx, &agentpb.ContainerStatsRequest{Container: id})
	if err != nil {
		return ContainerStats{}, nil, s.c.callError(ctx, err)
	}
	return ContainerStats{
		Memory: r.GetMemory(), CPU: r.GetCpu(), MemoryEvents: r.GetMemoryEvents(),
		MemoryCurrent: r.GetMemoryCurrent(), MemoryPeak: r.GetMemoryPeak(), MemoryLimit: r.GetMemoryLimit(),
		PIDsCurrent: r.GetPidsCurrent(), PIDsLimit: r.GetPidsLimit(),
	}, r.GetPids(), nil
}

// Delete ends the processes of a container and removes it. One that is not there is no error: the answer to an earlier call, whose
// ctx ended, may not have come.
func (s Containers) Delete(ctx context.Context, id string) error {
	_, err := s.c.containers.Delete(ctx, &agentpb.DeleteContainerRequest{Container: id})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return s.c.callError(ctx, err)
}

// Watch tells of what happens to containers until ctx or the session ends. The first event is of none.
func (s Containers) Watch(ctx context.Context, tell func(ContainerEvent)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.c.containers.Watch(ctx, &agentpb.WatchContainersRequest{})
	for err == nil {
		var e *agentpb.ContainerEvent
		if e, err = stream.Recv(); err == nil {
			tell(ContainerEvent{ID: guestText(e.GetContainer()), OOMKills: e.GetOomKills()})
		}
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it is about to stop", ErrAgentDead)
	}
	return s.c.callError(ctx, err)
}

// ListeningSockets are the sockets that the guest listens on. It is the guest's word only.
func (s Containers) ListeningSockets(ctx context.Context) (all []ListeningSocket, err error) {
	r, err := s.c.containers.ListeningSockets(ctx, &agentpb.ListeningSocketsRequest{})
	if err != nil {
		return nil, s.c.callError(ctx, err)
	}
	for _, l := range r.GetSockets() {
		addr, ok := netip.AddrFromSlice(l.GetAddress())
		if !ok || l.GetPort() == 0 || l.GetPort() > 0xffff || l.GetNetwork() != "tcp" && l.GetNetwork() != "udp" || len(all) == agentpb.MaxSockets {
			return nil, s.c.fail(fmt.Errorf("%w: a socket without an address, or more than %d", ErrProtocol, agentpb.MaxSockets))
		}
		all = append(all, ListeningSocket{Network: l.GetNetwork(), Address: netip.AddrPortFrom(addr, uint16(l.GetPort()))})
	}
	return all, nil
}

// message is the request. files tells which of the mounts are of a file.
func (cfg *ContainerConfig) message(files []bool) *agentpb.CreateContainerRequest {
	m := &agentpb.CreateContainerRequest{
		Id: cfg.ID, Root: &agentpb.HostDirectory{Path: cfg.Root}, ReadOnlyRoot: cfg.ReadOnlyRoot, Hostname: cfg.Hostname,
		Process: cfg.Process.message(), MaskedPaths: cfg.MaskedPaths, ReadOnlyPaths: cfg.ReadOnlyPaths, Sysctls: cfg.Sysctls,
		Limits: cfg.Resources.message(),
	}
	for i, mount := range cfg.Mounts {
		to := &agentpb.ContainerMount{
			Type: mount.Type, Target: mount.Target, ReadOnly: mount.ReadOnly, NoSuid: mount.NoSuid, NoDev: mount.NoDev, NoExec: mount.NoExec,
			SizeBytes: mount.SizeBytes, Mode: mount.Mode, Shared: mount.Shared, SubPath: mount.SubPath, Uid: mount.UID, Gid: mount.GID,
		}
		if mount.Type == "bind" {
			to.Source = &agentpb.HostDirectory{Path: mount.Source, File: i < len(files) && files[i]}
		}
		m.Mounts = append(m.Mounts, to)
	}
	return m
}

func (p *ContainerProcess) message() *agentpb.ContainerProcess {
	m := &agentpb.ContainerProcess{
		Args: p.Args, Env: p.Env, Cwd: p.Cwd, Uid: p.UID, Gid: p.GID, AdditionalGids: p.AdditionalGIDs, NoNewPrivileges: p.NoNewPrivileges,
		Terminal: p.Terminal, Rows: uint32(p.ConsoleSize.Rows), Columns: uint32(p.ConsoleSize.Cols), Umask: p.Umask,
		Capabilities: &agentpb.Capabilities{
			Bounding: p.Capabilities.Bounding, Effective: p.Capabilities.Effective, Inheritable: p.Capabilities.Inheritable,
			Permitted: p.Capabilities.Permitted, Ambient: p.Capabilities.Ambient,
		},
	}
	for _, l := range p.Rlimits {
		m.Rlimits = append(m.Rlimits, &agentpb.ContainerRlimit{Name: l.Name, Soft: l.Soft, Hard: l.Hard})
	}
	if p.OOMScoreAdj != nil {
		adjust := int32(max(min(*p.OOMScoreAdj, 1<<20), -1<<20)) // the guest says what is out of range
		m.OomScoreAdj = &adjust
	}
	return m
}

func (r *ContainerResources) message() *agentpb.ContainerLimits {
	return &agentpb.ContainerLimits{
		MemoryBytes: r.MemoryBytes, CpuWeight: r.CPUWeight, CpuQuotaUs: int64(r.CPUQuota / time.Microsecond),
		CpuPeriodUs: int64(r.CPUPeriod / time.Microsecond), Pids: r.PIDs, Unified: maps.Clone(r.Unified),
	}
}
