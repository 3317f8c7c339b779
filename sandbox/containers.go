package sandbox

import (
	"context"
	"errors"

	"github.com/msb-project/msb/agentd/agentclient"
)

// What containers are made of; see agentclient.
type (
	ContainerConfig    = agentclient.ContainerConfig
	ContainerMount     = agentclient.ContainerMount
	ContainerProcess   = agentclient.ContainerProcess
	Capabilities       = agentclient.Capabilities
	ContainerResources = agentclient.ContainerResources
	ContainerStdio     = agentclient.ContainerStdio
	ContainerExit      = agentclient.ContainerExit
	ContainerStats     = agentclient.ContainerStats
	ContainerEvent     = agentclient.ContainerEvent
	ListeningSocket    = agentclient.ListeningSocket
)

// Bounds of the containers of one sandbox.
const (
	MaxContainers      = 64 // that are not deleted
	MaxContainerMounts = 64 // of one
	MaxContainerExecs  = 64 // of one, at once
)

// errNoContainers is what the methods return until the guest knows containers.
var errNoContainers = errors.New("containers in a sandbox are not there yet")

// Containers are the containers of a sandbox that was started with Config.Containers. They end with it.
type Containers struct{ s *Sandbox }

// Containers are those of the sandbox.
func (s *Sandbox) Containers() *Containers { return &Containers{s} }

// Add makes a container, whose first process waits for Start. What can't be honoured is an error that names the field.
// ctx bounds the making.
func (c *Containers) Add(ctx context.Context, cfg ContainerConfig) (*Container, error) {
	return nil, Fail(errNoContainers)
}

// ListeningSockets are the sockets that the guest listens on, of all containers.
func (c *Containers) ListeningSockets(ctx context.Context) ([]ListeningSocket, error) {
	return nil, Fail(errNoContainers)
}

// Watch tells of what happens to containers until ctx or the sandbox ends, whose error it returns.
func (c *Containers) Watch(ctx context.Context, tell func(ContainerEvent)) error {
	return Fail(errNoContainers)
}

// Container is one container. Its methods may be called from several goroutines. The first process has the exec id "".
type Container struct{}

// Start starts the first process. ctx bounds the start alone. A program that can't be started is a *ContainerStartError.
func (c *Container) Start(ctx context.Context, io ContainerStdio) error { return Fail(errNoContainers) }

// Exec starts another process under that id, which is as free as a container's and is free again after Forget. ctx
// bounds the start alone. A program that can't be started is a *ContainerStartError.
func (c *Container) Exec(ctx context.Context, execID string, p ContainerProcess, io ContainerStdio) error {
	return Fail(errNoContainers)
}

// ContainerStartError is a program that can't be started.
type ContainerStartError struct {
	// Code is 127 for a program or a working directory that is missing, else 126.
	Code    int
	Message string
}

// Error implements error.
func (e *ContainerStartError) Error() string { return e.Message }

// PID is the process's number as the guest's agent sees it, which is no other process's of the sandbox; 0 if there is
// none of that id.
func (c *Container) PID(execID string) uint32 { return 0 }

// Signal sends a signal to the process, or to all processes of the container. It is ErrNoProcess once it has ended.
func (c *Container) Signal(ctx context.Context, execID string, sig agentclient.Signal, all bool) error {
	return Fail(errNoContainers)
}

// ErrNoProcess means that a container has no process of that id, or that it has ended.
var ErrNoProcess = errors.New("the container has no such process")

// Resize changes the size of the process's terminal.
func (c *Container) Resize(ctx context.Context, execID string, size agentclient.Size) error {
	return Fail(errNoContainers)
}

// CloseStdin ends the process's standard input.
func (c *Container) CloseStdin(ctx context.Context, execID string) error {
	return Fail(errNoContainers)
}

// Wait waits until the process has ended and its output is written, or ctx ends.
func (c *Container) Wait(ctx context.Context, execID string) (ContainerExit, error) {
	return ContainerExit{}, Fail(errNoContainers)
}

// Forget frees the id of a process of Exec that has ended.
func (c *Container) Forget(execID string) error { return Fail(errNoContainers) }

// Pids are the numbers of all processes of the container, as in PID.
func (c *Container) Pids(ctx context.Context) ([]uint32, error) { return nil, Fail(errNoContainers) }

// Stats are the figures of the container's control group.
func (c *Container) Stats(ctx context.Context) (ContainerStats, error) {
	return ContainerStats{}, Fail(errNoContainers)
}

// Update changes the limits that are not zero.
func (c *Container) Update(ctx context.Context, r ContainerResources) error {
	return Fail(errNoContainers)
}

// Pause holds all processes of the container still until Resume.
func (c *Container) Pause(ctx context.Context) error { return Fail(errNoContainers) }

// Resume undoes Pause.
func (c *Container) Resume(ctx context.Context) error { return Fail(errNoContainers) }

// Delete ends the container's processes and removes all that is of it, in the guest and of what serves it. A second call
// does nothing.
func (c *Container) Delete(ctx context.Context) error { return Fail(errNoContainers) }
