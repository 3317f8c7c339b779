package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/policies"
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
	MaxContainers      = agentpb.MaxContainers      // that are not deleted
	MaxContainerMounts = agentpb.MaxContainerMounts // of one
	MaxContainerExecs  = agentpb.MaxContainerExecs  // of one, at once
)

// ErrContainer is wrapped by errors about what a container can't have.
var ErrContainer = errors.New("the container can't be as it is described")

// Containers are the containers of a sandbox that was started with Config.Containers. They end with it.
type Containers struct{ s *Sandbox }

// Containers are those of the sandbox.
func (s *Sandbox) Containers() *Containers { return &Containers{s} }

// Add makes a container, whose first process waits for Start. What can't be honoured is an error that names the field.
// ctx bounds the making.
func (c *Containers) Add(ctx context.Context, cfg ContainerConfig) (*Container, error) {
	root, err := c.admit(cfg.Root, false)
	if err == nil && !root.IsDir() {
		err = fmt.Errorf("%w: %s is no directory", ErrContainer, cfg.Root)
	}
	if err != nil {
		return nil, Fail(fmt.Errorf("root: %w", err))
	}
	if len(cfg.Mounts) > MaxContainerMounts {
		return nil, Fail(fmt.Errorf("%w: mounts: %d of them, at most %d may be", ErrContainer, len(cfg.Mounts), MaxContainerMounts))
	}
	files := make([]bool, len(cfg.Mounts))
	for i, m := range cfg.Mounts {
		if m.Type != "bind" {
			if m.Source != "" {
				return nil, Fail(fmt.Errorf("%w: mounts[%d]: a source belongs to the type bind", ErrContainer, i))
			}
			continue
		}
		info, err := c.admit(m.Source, !m.ReadOnly)
		if err != nil {
			return nil, Fail(fmt.Errorf("mounts[%d]: %w", i, err))
		}
		files[i] = !info.IsDir()
	}
	cfg.Process.Env = withPlaceholders(cfg.Process.Env, c.s.info.Placeholders)
	pid, err := c.s.client.Containers().Create(ctx, &cfg, files)
	if err != nil {
		return nil, Fail(err)
	}
	return &Container{s: c.s, id: cfg.ID, processes: map[string]*containerProcess{"": newContainerProcess(pid)}}, nil
}

// withPlaceholders adds the placeholders of secrets to an environment, in which they replace whatever has their names: a
// value that somebody else put there stays outside (invariant 8).
func withPlaceholders(env []string, placeholders map[string]string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return placeholders[name] != ""
	})
	for _, name := range slices.Sorted(maps.Keys(placeholders)) {
		out = append(out, name+"="+placeholders[name])
	}
	return out
}

// admit looks at what a container is to see of this machine.
func (c *Containers) admit(path string, writable bool) (os.FileInfo, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return nil, fmt.Errorf("%w: %q is no absolute path without . and .. in it", ErrContainer, path)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrContainer, err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is neither a directory nor a regular file", ErrContainer, path)
	}
	confined := c.s.confined
	if confined == nil {
		confined = &Config{Policy: policies.Default()}
	}
	if err := confined.admitDirectory(c.s.home, &Directory{Host: path, Writable: writable}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrContainer, err)
	}
	return info, nil
}

// ListeningSockets are the sockets that the guest listens on, of all containers.
func (c *Containers) ListeningSockets(ctx context.Context) ([]ListeningSocket, error) {
	all, err := c.s.client.Containers().ListeningSockets(ctx)
	return all, Fail(err)
}

// Watch tells of what happens to containers until ctx or the sandbox ends, whose error it returns. The first event, which
// has no ID, says that none is missed from then on.
func (c *Containers) Watch(ctx context.Context, tell func(ContainerEvent)) error {
	return Fail(c.s.client.Containers().Watch(ctx, tell))
}

// Container is one container. Its methods may be called from several goroutines. The first process has the exec id "".
type Container struct {
	s  *Sandbox
	id string

	mu        sync.Mutex
	processes map[string]*containerProcess
	deleted   bool
}

// containerProcess is a process of a container, from before its start until it is forgotten.
type containerProcess struct {
	resize chan agentclient.Size
	stdin  stdinEnd
	ended  chan struct{} // closed when exit and err count

	mu    sync.Mutex
	begun bool
	pid   uint32
	exit  ContainerExit
	err   error
}

func newContainerProcess(pid uint32) *containerProcess {
	return &containerProcess{resize: make(chan agentclient.Size), ended: make(chan struct{}), pid: pid, stdin: stdinEnd{closed: make(chan struct{})}}
}

// end says how the process ended; the first call counts.
func (p *containerProcess) end(exit ContainerExit, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
	default:
		p.exit, p.err = exit, err
		close(p.ended)
	}
}

// begin is true for the first call.
func (p *containerProcess) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.begun
	p.begun = true
	return first
}

// Start starts the first process. ctx bounds the start alone. A program that can't be started is a *ContainerStartError.
func (c *Container) Start(ctx context.Context, io ContainerStdio) error {
	p, err := c.process("")
	if err == nil && !p.begin() {
		err = fmt.Errorf("%w: it was started already", ErrContainer)
	}
	if err != nil {
		return Fail(err)
	}
	return c.run(ctx, p, agentclient.ContainerExec{ID: c.id}, io)
}

// Exec starts another process under that id, which is as free as a container's and is free again after Forget. ctx
// bounds the start alone. A program that can't be started is a *ContainerStartError.
func (c *Container) Exec(ctx context.Context, execID string, process ContainerProcess, io ContainerStdio) error {
	p := newContainerProcess(0)
	c.mu.Lock()
	var err error
	switch {
	case execID == "" || c.processes[execID] != nil:
		err = fmt.Errorf("%w: there is a process %q already", ErrContainer, execID)
	case len(c.processes) > MaxContainerExecs:
		err = fmt.Errorf("%w: %d processes of Exec are there already; forget one that has ended", ErrContainer, MaxContainerExecs)
	default:
		c.processes[execID] = p
	}
	c.mu.Unlock()
	if err != nil {
		return Fail(err)
	}
	process.Env = withPlaceholders(process.Env, c.s.info.Placeholders)
	p.begin()
	err = c.run(ctx, p, agentclient.ContainerExec{ID: c.id, ExecID: execID, Process: &process}, io)
	if err != nil {
		c.mu.Lock()
		delete(c.processes, execID)
		c.mu.Unlock()
	}
	return err
}

// run starts a process and keeps its streams going until it ends.
func (c *Container) run(ctx context.Context, p *containerProcess, x agentclient.ContainerExec, stdio ContainerStdio) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	started := make(chan struct{})
	x.OnPID = func(pid uint32) {
		p.mu.Lock()
		p.pid = pid
		p.mu.Unlock()
		close(started)
	}
	opts := ExecOptions{Container: &x, Stdout: stdio.Stdout, Stderr: stdio.Stderr, Resize: p.resize}
	if stdio.Stdin != nil {
		opts.Stdin = p.stdin.of(stdio.Stdin)
	}
	done := make(chan error, 1)
	go func() {
		defer cancel()
		st, err := c.s.Exec(life, opts)
		p.stdin.close()
		if err == nil && st.StartError != agentclient.Started {
			err = &ContainerStartError{Code: st.Code, Message: st.Message}
		}
		p.end(ContainerExit{Code: st.Code, Signal: st.Signal, At: time.Now(), OOMKilled: st.OOMKilled}, err)
		done <- err
	}()
	select {
	case <-started:
		return nil
	case r := <-done:
		select {
		case <-started:
			return nil
		default:
		}
		return startFailure(r)
	case <-ctx.Done():
		cancel()
		<-done //nolint:errcheck // it is that of ctx, or comes too late
		return Fail(ctx.Err())
	}
}

// ContainerStartError is a program that can't be started.
type ContainerStartError struct {
	// Code is 127 for a program or a working directory that is missing, else 126.
	Code    int
	Message string
}

// Error implements error.
func (e *ContainerStartError) Error() string { return e.Message }

func (c *Container) process(execID string) (*containerProcess, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.processes[execID]; p != nil {
		return p, nil
	}
	return nil, ErrNoProcess
}

// PID is the process's number as the guest's agent sees it, which is no other process's of the sandbox; 0 if there is
// none of that id.
func (c *Container) PID(execID string) uint32 {
	p, err := c.process(execID)
	if err != nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Signal sends a signal to the process, or to all processes of the container. It is ErrNoProcess once it has ended. A
// container that is killed before its Start has ended, and Wait says so.
func (c *Container) Signal(ctx context.Context, execID string, sig agentclient.Signal, all bool) error {
	p, err := c.process(execID)
	if err != nil {
		return Fail(err)
	}
	there, err := c.s.client.Containers().Signal(ctx, c.id, execID, sig, all)
	if err != nil {
		return Fail(err)
	}
	if !there {
		return Fail(ErrNoProcess)
	}
	if execID == "" && sig == agentclient.SIGKILL && p.begin() { // it will not be started any more
		p.end(killed(), nil)
	}
	return nil
}

func killed() ContainerExit {
	return ContainerExit{Code: 128 + int(agentclient.SIGKILL), Signal: agentclient.SIGKILL, At: time.Now()}
}

// ErrNoProcess means that a container has no process of that id, or that it has ended.
var ErrNoProcess = errors.New("the container has no such process")

// Resize changes the size of the process's terminal.
func (c *Container) Resize(ctx context.Context, execID string, size agentclient.Size) error {
	p, err := c.process(execID)
	if err != nil {
		return Fail(err)
	}
	select {
	case p.resize <- size:
		return nil
	case <-p.ended:
		return Fail(ErrNoProcess)
	case <-ctx.Done():
		return Fail(ctx.Err())
	}
}

// CloseStdin ends the process's standard input. What was not read of Stdin until then is dropped: a caller that has an end
// of its own to close lets Stdin end instead.
func (c *Container) CloseStdin(_ context.Context, execID string) error {
	p, err := c.process(execID)
	if err == nil {
		p.stdin.close()
	}
	return Fail(err)
}

// stdinEnd is standard input that somebody else may end.
type stdinEnd struct {
	once   sync.Once
	closed chan struct{}
}

func (s *stdinEnd) close() { s.once.Do(func() { close(s.closed) }) }

// of reads r until it is closed. A Read that is under way then is left behind.
func (s *stdinEnd) of(r io.Reader) io.Reader {
	read := make(chan []byte)
	go func() {
		defer s.close()
		for {
			buf := make([]byte, agentpb.ChunkBytes)
			n, err := r.Read(buf)
			if n > 0 {
				select {
				case read <- buf[:n]:
				case <-s.closed:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return &endedReader{read: read, closed: s.closed}
}

type endedReader struct {
	read   <-chan []byte
	closed <-chan struct{}
	rest   []byte
}

// Read implements io.Reader.
func (r *endedReader) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		select {
		case r.rest = <-r.read:
		default:
			select {
			case r.rest = <-r.read:
			case <-r.closed:
				return 0, io.EOF
			}
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Wait waits until the process has ended and its output is written, or ctx ends.
func (c *Container) Wait(ctx context.Context, execID string) (ContainerExit, error) {
	p, err := c.process(execID)
	if err != nil {
		return ContainerExit{}, Fail(err)
	}
	select {
	case <-p.ended:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.exit, startFailure(p.err)
	case <-ctx.Done():
		return ContainerExit{}, Fail(ctx.Err())
	}
}

// startFailure is Fail for all but a *ContainerStartError.
func startFailure(err error) error {
	if se := (*ContainerStartError)(nil); errors.As(err, &se) {
		return se
	}
	return Fail(err)
}

// Forget frees the id of a process of Exec that has ended.
func (c *Container) Forget(execID string) error {
	p, err := c.process(execID)
	if err != nil || execID == "" {
		return Fail(ErrNoProcess)
	}
	select {
	case <-p.ended:
	default:
		return Fail(fmt.Errorf("%w: the process %s runs", ErrContainer, execID))
	}
	c.mu.Lock()
	delete(c.processes, execID)
	c.mu.Unlock()
	return nil
}

// Pids are the numbers of all processes of the container, as in PID.
func (c *Container) Pids(ctx context.Context) ([]uint32, error) {
	_, pids, err := c.s.client.Containers().Stats(ctx, c.id)
	return pids, Fail(err)
}

// Stats are the figures of the container's control group.
func (c *Container) Stats(ctx context.Context) (ContainerStats, error) {
	st, _, err := c.s.client.Containers().Stats(ctx, c.id)
	return st, Fail(err)
}

// Update changes the limits that are not zero.
func (c *Container) Update(ctx context.Context, r ContainerResources) error {
	return Fail(c.s.client.Containers().Update(ctx, c.id, r))
}

// Pause holds all processes of the container still until Resume.
func (c *Container) Pause(ctx context.Context) error {
	return Fail(c.s.client.Containers().Pause(ctx, c.id, false))
}

// Resume undoes Pause.
func (c *Container) Resume(ctx context.Context) error {
	return Fail(c.s.client.Containers().Pause(ctx, c.id, true))
}

// Delete ends the container's processes and removes all that is of it, in the guest and of what serves it. A second call
// does nothing.
func (c *Container) Delete(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deleted {
		return nil
	}
	if err := c.s.client.Containers().Delete(ctx, c.id); err != nil {
		return Fail(err)
	}
	c.deleted = true
	if p := c.processes[""]; p != nil && p.begin() {
		p.end(killed(), nil)
	}
	return nil
}
