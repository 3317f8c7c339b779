package agentclient

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// HostDirectory is a directory or a file of this machine that a container sees.
type HostDirectory struct {
	Path     string
	File     bool
	ReadOnly bool
}

// ContainerDirectories are what the containers of one guest see of this machine.
type ContainerDirectories struct {
	// offer serves one on the guest's port for directories, by the number that it returns, until done is called.
	offer func(HostDirectory) (number uint32, done func(), err error)

	// turn is held while a container is made or deleted: a directory that one gives back is not offered to another before
	// the guest has unmounted it.
	turn chan struct{}
	mu   sync.Mutex
	of   map[string]func() // by a container's id
	all  int
}

// take takes the turn until done is called.
func (d *ContainerDirectories) take(ctx context.Context) (done func(), err error) {
	select {
	case d.turn <- struct{}{}:
		return func() { <-d.turn }, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// NewContainerDirectories has offer serve them.
func NewContainerDirectories(offer func(HostDirectory) (number uint32, done func(), err error)) *ContainerDirectories {
	return &ContainerDirectories{offer: offer, turn: make(chan struct{}, 1), of: map[string]func(){}}
}

// prepare serves what r names and puts the numbers in the place of the paths.
func (d *ContainerDirectories) prepare(r *agentpb.CreateContainerRequest) (done func(), err error) {
	var offered []func()
	done = func() {
		for _, f := range offered {
			f()
		}
		d.mu.Lock()
		d.all -= len(offered)
		d.mu.Unlock()
	}
	serve := func(m *agentpb.HostDirectory, to HostDirectory) error {
		if m == nil {
			return nil
		}
		d.mu.Lock()
		full := d.all >= agentpb.MaxDirectories
		if !full {
			d.all++
		}
		d.mu.Unlock()
		if full {
			return status.Errorf(codes.ResourceExhausted, "containers see %d directories of this machine already; delete one", agentpb.MaxDirectories)
		}
		to.Path, to.File = m.GetPath(), m.GetFile()
		number, end, err := d.offer(to)
		if err != nil {
			end = func() {}
		}
		offered = append(offered, end)
		m.Path, m.Number = "", number
		if err != nil {
			err = status.Error(codes.InvalidArgument, err.Error())
		}
		return err
	}
	if len(r.GetMounts()) > agentpb.MaxContainerMounts {
		err = status.Errorf(codes.InvalidArgument, "mounts: %d of them, at most %d may be", len(r.GetMounts()), agentpb.MaxContainerMounts)
	}
	if err == nil {
		err = serve(r.GetRoot(), HostDirectory{ReadOnly: true})
	}
	for _, m := range r.GetMounts() {
		if err == nil {
			err = serve(m.GetSource(), HostDirectory{ReadOnly: m.GetReadOnly()})
		}
	}
	if err != nil {
		done()
	}
	return done, err
}

// keep keeps what is served until the container of that id is released.
func (d *ContainerDirectories) keep(id string, done func()) {
	d.mu.Lock()
	before := d.of[id] // a guest may say twice that it made a container
	d.of[id] = done
	d.mu.Unlock()
	if before != nil {
		before()
	}
}

func (d *ContainerDirectories) release(id string) {
	d.mu.Lock()
	done := d.of[id]
	delete(d.of, id)
	d.mu.Unlock()
	if done != nil {
		done()
	}
}

// containersProxy serves containers on.
type containersProxy struct {
	agentpb.UnimplementedContainersServer
	proxy
	directories *ContainerDirectories
}

var _ agentpb.ContainersServer = (*containersProxy)(nil)

var errNoContainers = status.Error(codes.PermissionDenied, "the sandbox was not started to take containers")

// Create implements agentpb.ContainersServer.
func (p *containersProxy) Create(ctx context.Context, r *agentpb.CreateContainerRequest) (*agentpb.CreateContainerResponse, error) {
	if p.directories == nil {
		return nil, errNoContainers
	}
	over, err := p.directories.take(ctx)
	if err != nil {
		return nil, err
	}
	defer over()
	done, err := p.directories.prepare(r)
	if err != nil {
		return nil, err
	}
	resp, err := p.c.containers.Create(ctx, r)
	if err != nil {
		if ctx.Err() != nil { // the guest may have made it all the same
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateDelete)
			_, _ = p.c.containers.Delete(late, &agentpb.DeleteContainerRequest{Container: r.GetId()})
			cancel()
		}
		done()
		return nil, p.status(ctx, err)
	}
	p.directories.keep(r.GetId(), done)
	return resp, nil
}

// Signal implements agentpb.ContainersServer.
func (p *containersProxy) Signal(ctx context.Context, r *agentpb.SignalContainerRequest) (*agentpb.SignalContainerResponse, error) {
	resp, err := p.c.containers.Signal(ctx, r)
	return resp, p.status(ctx, err)
}

// Update implements agentpb.ContainersServer.
func (p *containersProxy) Update(ctx context.Context, r *agentpb.UpdateContainerRequest) (*agentpb.UpdateContainerResponse, error) {
	resp, err := p.c.containers.Update(ctx, r)
	return resp, p.status(ctx, err)
}

// Pause implements agentpb.ContainersServer.
func (p *containersProxy) Pause(ctx context.Context, r *agentpb.PauseContainerRequest) (*agentpb.PauseContainerResponse, error) {
	resp, err := p.c.containers.Pause(ctx, r)
	return resp, p.status(ctx, err)
}

// Stats implements agentpb.ContainersServer.
func (p *containersProxy) Stats(ctx context.Context, r *agentpb.ContainerStatsRequest) (*agentpb.ContainerStatsResponse, error) {
	resp, err := p.c.containers.Stats(ctx, r)
	return resp, p.status(ctx, err)
}

// Delete implements agentpb.ContainersServer.
func (p *containersProxy) Delete(ctx context.Context, r *agentpb.DeleteContainerRequest) (*agentpb.DeleteContainerResponse, error) {
	if p.directories == nil {
		return nil, errNoContainers
	}
	over, err := p.directories.take(ctx)
	if err != nil {
		return nil, err
	}
	defer over()
	resp, err := p.c.containers.Delete(ctx, r)
	if status.Code(err) == codes.NotFound { // an earlier call did it, whose answer didn't come
		resp, err = &agentpb.DeleteContainerResponse{}, nil
	}
	if err != nil {
		return nil, p.status(ctx, err)
	}
	p.directories.release(r.GetContainer())
	return resp, nil
}

// lateDelete bounds the deletion of a container whose creator doesn't wait for it any more.
const lateDelete = 30 * time.Second

// Watch implements agentpb.ContainersServer.
func (p *containersProxy) Watch(r *agentpb.WatchContainersRequest, down agentpb.Containers_WatchServer) error {
	ctx := down.Context()
	up, err := p.c.containers.Watch(ctx, r)
	for err == nil {
		var e *agentpb.ContainerEvent
		if e, err = up.Recv(); err == nil {
			if err := down.Send(e); err != nil {
				return err
			}
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return p.status(ctx, err)
}

// ListeningSockets implements agentpb.ContainersServer.
func (p *containersProxy) ListeningSockets(ctx context.Context, r *agentpb.ListeningSocketsRequest) (*agentpb.ListeningSocketsResponse, error) {
	resp, err := p.c.containers.ListeningSockets(ctx, r)
	return resp, p.status(ctx, err)
}
