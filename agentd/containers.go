//go:build linux

package agentd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/system"
	"github.com/msb-project/msb/agentd/internal/workload"
	"github.com/msb-project/msb/internal/lazyregexp"
)

// containerServer makes and holds the containers of the guest.
type containerServer struct {
	agentpb.UnimplementedContainersServer
	cgroups  *workload.Cgroups // nil where there are none
	reaper   *workload.Reaper
	mounts   *hostMounts
	tmpfs    sharedTmpfs
	shutdown <-chan struct{}
	log      *slog.Logger
	trust    *agentpb.Trust // of the handshake

	mu       sync.Mutex
	all      map[string]*container    // nil for one that is being made or removed
	busy     map[string]chan struct{} // of those, closed when that is done
	last     uint64
	watchers map[chan *agentpb.ContainerEvent]struct{}
}

var _ agentpb.ContainersServer = (*containerServer)(nil)

// container is one container.
type container struct {
	*workload.Container
	id      string
	number  uint64
	mounted []uint32 // of the host's directories and files
	unwatch func()

	mu      sync.Mutex
	started bool
	execs   map[string]*workload.Process // nil for one that is being started
	pausing sync.Mutex
}

// containerID is what containers and their processes may be called.
var containerID = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

func checkID(what, id string) error {
	if !containerID.MatchString(id) {
		return status.Errorf(codes.InvalidArgument, "%s %.40q: an id has 1 to 128 letters, digits, \".\", \"_\" and \"-\", the first a letter or a digit", what, id)
	}
	return nil
}

// Create implements agentpb.ContainersServer.
func (s *containerServer) Create(ctx context.Context, r *agentpb.CreateContainerRequest) (*agentpb.CreateContainerResponse, error) {
	setup, process, err := parseContainer(r)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if s.cgroups == nil || s.mounts == nil {
		return nil, status.Error(codes.FailedPrecondition, "the guest's kernel has no control groups, or the machine no port for directories")
	}
	number, err := s.reserve(r.GetId())
	if err != nil {
		return nil, err
	}
	c := &container{id: r.GetId(), number: number, execs: map[string]*workload.Process{}}
	if err = s.make(ctx, c, r, setup, process); err == nil && ctx.Err() != nil { // nobody would know of it
		err = errors.Join(ctx.Err(), s.remove(c, c.Group()))
	}
	if err != nil {
		s.settle(c.id, nil)
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	s.settle(c.id, c)
	return &agentpb.CreateContainerResponse{Pid: uint32(c.First().PID)}, nil
}

// reserve takes the id, and a number, which no container had before.
func (s *containerServer) reserve(id string) (uint64, error) {
	if err := checkID("container", id); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, have := s.all[id]; have {
		return 0, status.Errorf(codes.InvalidArgument, "there is a container %s already", id)
	}
	if len(s.all) >= agentpb.MaxContainers {
		return 0, status.Errorf(codes.ResourceExhausted, "%d containers are there already; delete one", len(s.all))
	}
	if s.last == 0 {
		if err := system.ForgetContainers(); err != nil {
			return 0, status.Error(codes.ResourceExhausted, "remove what is left of containers of before: "+err.Error())
		}
	}
	s.last++
	s.all[id], s.busy[id] = nil, make(chan struct{})
	return s.last, nil
}

// settle says what became of an id that was being made or removed: c, or nothing.
func (s *containerServer) settle(id string, c *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[id] = c; c == nil {
		delete(s.all, id)
	}
	close(s.busy[id])
	delete(s.busy, id)
}

func (s *containerServer) make(ctx context.Context, c *container, r *agentpb.CreateContainerRequest, setup *workload.ContainerSetup, process *workload.ContainerProcess) (err error) {
	group, err := s.cgroups.NewNamed("container-" + strconv.FormatUint(c.number, 10))
	if err != nil {
		return err
	}
	var files workload.ContainerFiles
	defer func() {
		if err == nil {
			return
		}
		for _, f := range append(files.Binds, files.Root, files.PTS) {
			if f != nil {
				_ = f.Close() // it may be closed already
			}
		}
		err = errors.Join(err, s.remove(c, group))
	}()
	if err := limitContainer(group, r.GetLimits()); err != nil {
		return err
	}
	mount := func(d *agentpb.HostDirectory, attributes int) (*os.File, error) {
		f, err := s.mounts.take(d, attributes)
		if err == nil {
			c.mounted = append(c.mounted, d.GetNumber())
		}
		return f, err
	}
	lower, err := mount(r.GetRoot(), unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return fmt.Errorf("root: %w", err)
	}
	files.Root, err = system.ContainerRoot(c.number, lower)
	if err = errors.Join(err, lower.Close()); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	for i := range setup.Mounts {
		m, of := &setup.Mounts[i], r.GetMounts()[i]
		var f *os.File
		var err error
		switch {
		case of.GetShared() != "":
			m.Type = "bind"
			f, m.File, err = s.tmpfs.take(of, m.Attributes)
		case m.Type == "bind":
			f, err = mount(of.GetSource(), m.Attributes)
		default:
			continue
		}
		if err != nil {
			return fmt.Errorf("mounts[%d]: %w", i, err)
		}
		m.Bind, files.Binds = len(files.Binds), append(files.Binds, f)
	}
	if files.PTS, err = system.NewTerminals(); err != nil {
		return err
	}
	setup.CA, process.TrustEnv = s.trust.GetCaPem(), s.trust.GetSetEnv()
	setup.Place = system.ContainerPlace(c.number)
	if c.Container, err = workload.NewContainer(ctx, s.reaper, group, setup, process, files); err != nil {
		return err
	}
	c.unwatch, err = group.WatchOOM(func(kills uint64) { s.tell(&agentpb.ContainerEvent{Container: c.id, OomKills: kills}) })
	if err != nil {
		c.unwatch = func() {}
		s.log.Warn("no word of a container's memory", "err", err)
	}
	return nil
}

// remove removes all that is of a container.
func (s *containerServer) remove(c *container, group *workload.Cgroup) error {
	group.Kill()
	err := group.Settle(deleteGrace)
	if c.Container != nil {
		c.Close()
	}
	if c.unwatch != nil {
		c.unwatch()
	}
	for _, number := range c.mounted {
		s.mounts.release(number)
	}
	return errors.Join(err, group.Remove(), system.RemoveContainer(c.number))
}

// deleteGrace is how long killed processes of a container may take to end.
const deleteGrace = 2 * stopGrace

func (s *containerServer) find(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.all[id]; c != nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no container %.40q", id)
}

// Delete implements agentpb.ContainersServer. Where another call makes or removes the container, it waits for that one: its caller
// may have given up.
func (s *containerServer) Delete(ctx context.Context, r *agentpb.DeleteContainerRequest) (*agentpb.DeleteContainerResponse, error) {
	for {
		s.mu.Lock()
		c, busy := s.all[r.GetContainer()], s.busy[r.GetContainer()]
		if c != nil {
			s.all[c.id], s.busy[c.id] = nil, make(chan struct{}) // nobody else gets it
		}
		s.mu.Unlock()
		switch {
		case c != nil:
			err := s.remove(c, c.Group())
			s.settle(c.id, nil)
			if err != nil {
				return nil, status.Error(codes.Aborted, err.Error())
			}
			return &agentpb.DeleteContainerResponse{}, nil
		case busy == nil:
			return nil, status.Errorf(codes.NotFound, "there is no container %.40q", r.GetContainer())
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// start starts what Exec names. The group is the first process's alone: to end it ends all. done comes after the process's
// end.
func (s *containerServer) start(r *agentpb.ContainerStart) (p *workload.Process, group *workload.Cgroup, done func(), err error) {
	c, err := s.find(r.GetContainer())
	if err != nil {
		return nil, nil, nil, err
	}
	if r.GetExecId() == "" {
		c.mu.Lock()
		c.started = true
		c.mu.Unlock()
		p, err := c.Start()
		return p, c.Group(), func() {}, err
	}
	process, err := parseProcess(r.GetProcess())
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%w: %w", workload.ErrRequest, err)
	}
	process.TrustEnv = s.trust.GetSetEnv()
	if err := c.reserve(r.GetExecId()); err != nil {
		return nil, nil, nil, err
	}
	p, err = c.Exec(process)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		delete(c.execs, r.GetExecId())
		return nil, nil, nil, err
	}
	c.execs[r.GetExecId()] = p
	return p, nil, func() {
		c.mu.Lock()
		delete(c.execs, r.GetExecId())
		c.mu.Unlock()
	}, nil
}

func (c *container) reserve(execID string) error {
	if err := checkID("exec", execID); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, have := c.execs[execID]; have {
		return status.Errorf(codes.InvalidArgument, "the container has a process %s already", execID)
	}
	if len(c.execs) >= agentpb.MaxContainerExecs {
		return status.Errorf(codes.ResourceExhausted, "%d processes run in the container for the host already; wait for one to end", len(c.execs))
	}
	c.execs[execID] = nil
	return nil
}

// Signal implements agentpb.ContainersServer.
func (s *containerServer) Signal(_ context.Context, r *agentpb.SignalContainerRequest) (*agentpb.SignalContainerResponse, error) {
	c, err := s.find(r.GetContainer())
	if err != nil {
		return nil, err
	}
	sig := syscall.Signal(r.GetSignal())
	if sig <= 0 || sig > maxSignal {
		return nil, status.Errorf(codes.InvalidArgument, "there is no signal %d", r.GetSignal())
	}
	if r.GetAll() {
		if sig == syscall.SIGKILL {
			c.Group().Kill()
			return &agentpb.SignalContainerResponse{}, nil
		}
		pids, err := c.Group().Procs(maxPids)
		for _, pid := range pids {
			_ = syscall.Kill(pid, sig) // it may have ended
		}
		if err != nil {
			return nil, status.Error(codes.Aborted, err.Error())
		}
		return &agentpb.SignalContainerResponse{Gone: len(pids) == 0}, nil
	}
	p := c.First()
	if r.GetExecId() != "" {
		c.mu.Lock()
		p = c.execs[r.GetExecId()]
		c.mu.Unlock()
	}
	return &agentpb.SignalContainerResponse{Gone: p == nil || !p.Signal(sig)}, nil
}

const (
	maxSignal = 64
	// maxPids bounds how many processes of a container are listed or signalled.
	maxPids = 1 << 15
)

// Update implements agentpb.ContainersServer.
func (s *containerServer) Update(_ context.Context, r *agentpb.UpdateContainerRequest) (*agentpb.UpdateContainerResponse, error) {
	c, err := s.find(r.GetContainer())
	if err != nil {
		return nil, err
	}
	if err := setLimits(c.Group(), r.GetLimits()); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &agentpb.UpdateContainerResponse{}, nil
}

// Pause implements agentpb.ContainersServer.
func (s *containerServer) Pause(ctx context.Context, r *agentpb.PauseContainerRequest) (*agentpb.PauseContainerResponse, error) {
	c, err := s.find(r.GetContainer())
	if err != nil {
		return nil, err
	}
	c.pausing.Lock()
	defer c.pausing.Unlock()
	if err := c.Group().Freeze(!r.GetResume(), ctx.Done()); err != nil {
		return nil, status.Error(codes.Aborted, err.Error())
	}
	return &agentpb.PauseContainerResponse{}, nil
}

// Stats implements agentpb.ContainersServer.
func (s *containerServer) Stats(_ context.Context, r *agentpb.ContainerStatsRequest) (*agentpb.ContainerStatsResponse, error) {
	c, err := s.find(r.GetContainer())
	if err != nil {
		return nil, err
	}
	g := c.Group()
	values := func(name string) map[string]uint64 {
		v, _ := g.Values(name) // a kernel without it has none
		return v
	}
	resp := &agentpb.ContainerStatsResponse{
		Memory: values("memory.stat"), Cpu: values("cpu.stat"), MemoryEvents: values("memory.events"),
		MemoryCurrent: g.Value("memory.current"), MemoryPeak: g.Value("memory.peak"), MemoryLimit: g.Value("memory.max"),
		PidsCurrent: g.Value("pids.current"), PidsLimit: g.Value("pids.max"),
	}
	pids, err := g.Procs(maxPids)
	if err != nil {
		return nil, status.Error(codes.Aborted, err.Error())
	}
	for _, pid := range pids {
		resp.Pids = append(resp.Pids, uint32(pid))
	}
	slices.Sort(resp.Pids)
	return resp, nil
}

// tell passes an event on to those who watch.
func (s *containerServer) tell(e *agentpb.ContainerEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		select {
		case w <- e:
		default: // one that doesn't read misses it
		}
	}
}

const (
	maxWatchers   = 8
	watcherEvents = 256
)

// Watch implements agentpb.ContainersServer.
func (s *containerServer) Watch(_ *agentpb.WatchContainersRequest, stream agentpb.Containers_WatchServer) error {
	events := make(chan *agentpb.ContainerEvent, watcherEvents)
	s.mu.Lock()
	full := len(s.watchers) >= maxWatchers
	if !full {
		s.watchers[events] = struct{}{}
	}
	s.mu.Unlock()
	if full {
		return status.Errorf(codes.ResourceExhausted, "%d watch already", maxWatchers)
	}
	defer func() {
		s.mu.Lock()
		delete(s.watchers, events)
		s.mu.Unlock()
	}()
	if err := stream.Send(&agentpb.ContainerEvent{}); err != nil { // from now on none is missed
		return err
	}
	for {
		select {
		case e := <-events:
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.shutdown:
			return nil
		}
	}
}

// ListeningSockets implements agentpb.ContainersServer.
func (s *containerServer) ListeningSockets(context.Context, *agentpb.ListeningSocketsRequest) (*agentpb.ListeningSocketsResponse, error) {
	sockets, err := system.ListeningSockets(agentpb.MaxSockets)
	if err != nil {
		return nil, status.Error(codes.Aborted, err.Error())
	}
	resp := &agentpb.ListeningSocketsResponse{}
	for _, l := range sockets {
		resp.Sockets = append(resp.Sockets, &agentpb.ListeningSocket{Network: l.Network, Address: l.Address.Addr().AsSlice(), Port: uint32(l.Address.Port())})
	}
	return resp, nil
}
