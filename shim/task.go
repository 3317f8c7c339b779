package shim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// task is one container of the pod, or the pod itself: then c is nil, and its first process is nothing but a wait for the
// end of the machine.
type task struct {
	id, bundle string
	c          container
	left       left
	kill       chan uint32 // the signal that ends a task without a container
	stats      taskStats

	removing, removal sync.Once
	removed           chan struct{} // closed when the guest has removed the container

	oomKills uint64 // of service.watch
	oomTold  int    // times since oomSince
	oomSince time.Time

	pausing sync.Mutex // before mu, which is not held while the guest is asked: containerd asks for the state of all tasks
	mu      sync.Mutex
	init    *process
	execs   map[string]*process
	paused  bool
	gone    bool           // init has ended: no exec may be started
	live    sync.WaitGroup // execs that run
}

// find returns a process of the task.
func (t *task) find(execID string) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if execID == "" {
		return t.init, nil
	}
	if p := t.execs[execID]; p != nil {
		return p, nil
	}
	return nil, errNotFound("no exec " + execID + " of the container " + t.id)
}

// addExec makes an exec that waits for its start.
func (t *task) addExec(execID string, s streams, spec sandbox.ContainerProcess) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.c == nil:
		return refused("exec in the pod itself, which has no container; name one of the pod's")
	case execID == "" || t.execs[execID] != nil:
		return withKind("the exec "+execID+" is there already", errdefs.ErrAlreadyExists)
	}
	p := newProcess(execID, s)
	p.spec = spec
	t.execs[execID] = p
	return nil
}

// begin marks a process as started, so that a second start is refused, and returns what starts it.
func (t *task) begin(p *process) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case p.started:
		return withKind("the process was started already", errdefs.ErrFailedPrecondition)
	case p.over() || p.execID != "" && (t.gone || !t.init.started):
		return withKind("the container "+t.id+" doesn't run", errdefs.ErrFailedPrecondition)
	case p.execID != "" && t.paused: // it would be frozen before it runs, and its start never be answered
		return withKind("the container "+t.id+" is paused; resume it first", errdefs.ErrFailedPrecondition)
	}
	p.started = true
	if p.execID != "" {
		t.live.Add(1)
	}
	return nil
}

// run starts a process that begin admitted.
func (t *task) run(ctx context.Context, namespace string, p *process) error {
	defer close(p.running)
	if t.c == nil {
		return nil
	}
	io, err := openStdio(context.WithoutCancel(ctx), t.id, namespace, p.streams)
	if err != nil {
		return err
	}
	t.mu.Lock()
	p.io = io
	t.mu.Unlock()
	if p.execID == "" {
		err = t.c.Start(ctx, io.ContainerStdio)
	} else {
		err = t.c.Exec(ctx, p.execID, p.spec, io.ContainerStdio)
	}
	if err != nil {
		io.close()
	}
	return err
}

// await waits for the end of a process that runs, and returns how it ended. A machine that ends takes its processes along,
// as SIGKILL would.
func (t *task) await(ctx context.Context, m machine, p *process) leftExit {
	if t.c == nil {
		select {
		case sig := <-t.kill:
			return leftExit{128 + sig, now()}
		case <-m.Done():
			return leftExit{killed, now()}
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	exit, err := t.c.Wait(ctx, p.execID)
	p.io.close()
	if err != nil {
		return leftExit{killed, now()}
	}
	return leftExit{uint32(exit.Code), exit.At}
}

// signal sends a signal to a process, or to all of the container's. It waits for a start that is under way.
func (t *task) signal(ctx context.Context, p *process, sig agentclient.Signal, all bool) error {
	t.mu.Lock()
	started := p.started
	t.mu.Unlock()
	if started {
		select {
		case <-p.running:
		case <-p.exited:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	switch {
	case p.over():
		return errOver
	case t.c == nil:
		select {
		case t.kill <- uint32(sig):
		default: // it is ending by an earlier one
		}
		return nil
	case !started:
		return withKind("the process was not started", errdefs.ErrFailedPrecondition)
	}
	if sig == agentclient.SIGKILL {
		p.dropAfterKill(p.io)
	}
	err := t.c.Signal(ctx, p.execID, sig, all)
	if errors.Is(err, sandbox.ErrNoProcess) {
		return errOver
	}
	return err
}

// setPaused holds the container's processes still, or lets them go on.
func (t *task) setPaused(ctx context.Context, paused bool) error {
	t.pausing.Lock()
	defer t.pausing.Unlock()
	if t.c == nil {
		return refused("pausing the pod itself, which has no container; name one of the pod's")
	}
	t.mu.Lock()
	can, state := !t.gone && t.init.started && t.paused != paused, t.init.state(t.paused)
	t.mu.Unlock()
	if !can {
		return withKind(fmt.Sprintf("the container %s can't be paused or resumed: it is %s", t.id, state), errdefs.ErrFailedPrecondition)
	}
	do := t.c.Resume
	if paused {
		do = t.c.Pause
	}
	if err := do(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	t.paused = paused
	t.mu.Unlock()
	return nil
}

// settle records how a process ended, and tells it before anybody can delete the process, whose event would come first.
func (t *task) settle(p *process, exit leftExit, tell func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.status, p.at = exit.Status, exit.At
	close(p.exited)
	tell()
}

// end settles a process that could not be started.
func (t *task) end(p *process, exit leftExit) {
	t.settle(p, exit, func() {})
	if p.execID != "" {
		t.live.Done()
	}
}

// resize changes the size of a process's terminal.
func (t *task) resize(ctx context.Context, p *process, size agentclient.Size) error {
	switch {
	case p.over():
		return errOver
	case t.c == nil || !p.streams.terminal:
		return withKind("the process has no terminal", errdefs.ErrFailedPrecondition)
	}
	return t.c.Resize(ctx, p.execID, size)
}
