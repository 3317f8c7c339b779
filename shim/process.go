package shim

import (
	"context"
	"sync"
	"time"

	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"

	"github.com/msb-project/msb/sandbox"
)

// killGrace is how long the outputs of a process that was killed may wait for a reader before they are dropped. The end of
// a process is reported once its output is written, and nobody may be reading any more.
const killGrace = 10 * time.Second

// process is a container's first process (execID "") or one of its execs. Its fields are guarded by its task's mutex but
// for its channels; exited is closed when status and at are set for good.
type process struct {
	execID  string
	streams streams
	io      *stdio
	spec    sandbox.ContainerProcess // of an exec

	started bool
	running chan struct{} // closed when the guest has answered to the start
	exited  chan struct{}
	status  uint32
	at      time.Time
	stop    sync.Once // the timer that killGrace needs
	insist  sync.Once
	lost    chan struct{} // closed when the guest is not waited for any more
}

func newProcess(execID string, s streams) *process {
	return &process{execID: execID, streams: s, running: make(chan struct{}), exited: make(chan struct{}), lost: make(chan struct{})}
}

func (p *process) over() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// abandoned tells whether the guest didn't end it.
func (p *process) abandoned() bool {
	select {
	case <-p.lost:
		return true
	default:
		return false
	}
}

// state is what containerd calls it.
func (p *process) state(paused bool) tasktypes.Status {
	switch {
	case p.over():
		return tasktypes.Status_STOPPED
	case !p.started:
		return tasktypes.Status_CREATED
	case paused:
		return tasktypes.Status_PAUSED
	}
	return tasktypes.Status_RUNNING
}

// wait waits for the end.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dropAfterKill gives up on the outputs' readers some time after a SIGKILL.
func (p *process) dropAfterKill(io *stdio) {
	p.stop.Do(func() {
		go func() {
			t := time.NewTimer(killGrace)
			defer t.Stop()
			select {
			case <-p.exited:
			case <-t.C:
				io.close()
			}
		}()
	})
}

// errOver is the answer to a signal for a process that has ended, which containerd expects and takes for success.
var errOver = errNotFound("the process has ended")

func errNotFound(text string) error { return withKind(text, errdefs.ErrNotFound) }
