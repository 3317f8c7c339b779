package jobkeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// input is the standard input of a job that runs. Nothing of it is kept: a write waits until the guest takes the bytes.
type input struct {
	mu       sync.Mutex // one write at a time, so that none is torn
	near     net.Conn   // a pipe, for its deadlines
	far      net.Conn
	finished bool
}

// newInput returns nil for a job without standard input.
func newInput(wanted bool) *input {
	if !wanted {
		return nil
	}
	in := &input{}
	in.near, in.far = net.Pipe()
	return in
}

// reader is what the guest's process reads; nil if there is nothing to read.
func (in *input) reader() io.Reader {
	if in == nil {
		return nil
	}
	return in.far
}

// close ends writes that wait, and the goroutine that reads.
func (in *input) close() {
	if in != nil {
		_, _ = in.far.Close(), in.near.Close() // a net.Pipe's never fail
	}
}

// inputWait is how long a job may take nothing before its writer hears of it.
const inputWait = 5 * time.Second

// write returns how many bytes of p were taken.
func (in *input) write(ctx context.Context, p []byte, eof bool) (n int, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.finished {
		return 0, agentclient.ErrJobInput
	}
	past := make(chan struct{})
	late := context.AfterFunc(ctx, func() { defer close(past); _ = in.near.SetWriteDeadline(time.Unix(1, 0)) })
	defer func() {
		if !late() {
			<-past // or it would end the next writer's wait
		}
	}()
	if err := in.near.SetWriteDeadline(time.Now().Add(inputWait)); err != nil {
		return 0, state.ErrJobEnded
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	n, err = in.near.Write(p)
	switch {
	case ctx.Err() != nil:
		return n, ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, fmt.Errorf("%w: the job took %d of %d bytes of its standard input within %s", agentclient.ErrBusy, n, len(p), inputWait)
	case err != nil: // the pipe was closed
		return n, state.ErrJobEnded
	case eof:
		in.finished = true
		_ = in.near.Close() // never fails
	}
	return n, nil
}

// WriteJob implements agentclient.JobServer.
func (k *Keeper) WriteJob(ctx context.Context, id agentclient.JobID, p []byte, eof bool) (int, error) {
	k.mu.Lock()
	live, err := k.check(id)
	k.mu.Unlock()
	switch {
	case err != nil:
		return 0, err
	case live.signals == nil:
		return 0, fmt.Errorf("%w: %s", state.ErrJobEnded, id.Name)
	case live.input == nil:
		return 0, fmt.Errorf("%w: %s was started without -i", agentclient.ErrJobInput, id.Name)
	}
	n, err := live.input.write(ctx, p, eof)
	if errors.Is(err, agentclient.ErrJobInput) {
		err = fmt.Errorf("%w: that of %s was ended", err, id.Name)
	} else if errors.Is(err, state.ErrJobEnded) {
		err = fmt.Errorf("%w: %s", err, id.Name)
	}
	return n, err
}
