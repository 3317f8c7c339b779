package shim

import (
	"context"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// machine is a pod's microVM, as the service sees it.
type machine interface {
	Add(ctx context.Context, cfg sandbox.ContainerConfig) (container, error)
	Watch(ctx context.Context, tell func(sandbox.ContainerEvent)) error
	Done() <-chan struct{}
	Err() error
	Close() error
}

// container is one of a machine's containers.
type container interface {
	Start(ctx context.Context, io sandbox.ContainerStdio) error
	Exec(ctx context.Context, execID string, p sandbox.ContainerProcess, io sandbox.ContainerStdio) error
	PID(execID string) uint32
	Signal(ctx context.Context, execID string, sig agentclient.Signal, all bool) error
	Resize(ctx context.Context, execID string, size agentclient.Size) error
	Wait(ctx context.Context, execID string) (sandbox.ContainerExit, error)
	Forget(execID string) error
	Pids(ctx context.Context) ([]uint32, error)
	Stats(ctx context.Context) (sandbox.ContainerStats, error)
	Update(ctx context.Context, r sandbox.ContainerResources) error
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	Delete(ctx context.Context) error
}

var _ container = (*sandbox.Container)(nil)

// vm is a machine of the SDK.
type vm struct{ *sandbox.Sandbox }

var _ machine = vm{}

// Add makes a container in the machine.
func (m vm) Add(ctx context.Context, cfg sandbox.ContainerConfig) (container, error) {
	c, err := m.Containers().Add(ctx, cfg)
	if err != nil {
		return nil, err // and no container that is a nil pointer
	}
	return c, nil
}

// Watch tells of processes that the guest's kernel killed for lack of memory.
func (m vm) Watch(ctx context.Context, tell func(sandbox.ContainerEvent)) error {
	return m.Containers().Watch(ctx, tell)
}
