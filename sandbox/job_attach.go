package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/joblog"
)

// AttachOptions are the streams that join a job's. Each may be nil.
type AttachOptions struct {
	// Stdin is copied to the job's standard input, if it was started with JobInput. The end of Stdin doesn't close the
	// job's. Any error of it but io.EOF ends the attachment, and Attach returns it.
	Stdin io.Reader
	// Stdout and Stderr get what the job writes from now on, or with All from its beginning, even if it has ended. A slow
	// writer delays only this attachment; Missing counts the output that the job's ring no longer has by then.
	Stdout, Stderr io.Writer
	All            bool
	Missing        func(bytes int64)
	// Attached is called once: output from then on is copied.
	Attached func()
}

const (
	// attachPause is the time between two checks of an attached job's output. It is short because somebody may be typing.
	attachPause = 10 * time.Millisecond
	// attachPart is the most that is read of Stdin at once, in bytes.
	attachPart = 32 << 10
)

// Attach joins a running job's streams until it has ended, and returns how it ended. The output is read from the job's
// files, as Logs does, so that the job waits for nobody. When ctx ends, Stdin fails or a writer does, the job runs on.
// ErrJobEnded without All, ErrNotRunning. A Read of Stdin may be under way after Attach has returned.
func (j *Job) Attach(ctx context.Context, o AttachOptions) (JobStatus, error) {
	st, err := j.Status()
	if err != nil {
		return st, err
	}
	if st.State != JobRunning && !o.All {
		return st, Fail(fmt.Errorf("%w: %s", ErrJobEnded, j.name))
	}
	here := *j
	if here.client == nil {
		s, err := connectNamed(ctx, j.home, j.sandbox)
		if err != nil {
			return st, Fail(err)
		}
		defer func() { _ = s.Close() }() // the session alone
		here.client = s.client
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	st, err = here.follow(ctx, &o, func() {
		if o.Stdin != nil && st.Input {
			go func() {
				if err := here.feed(ctx, o.Stdin); err != nil {
					cancel(err)
				}
			}()
		}
	})
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}
	return st, err
}

// Resize sets the size of the job's terminal.
func (j *Job) Resize(ctx context.Context, size agentclient.Size) error {
	return Fail(j.call(ctx, func(c *agentclient.Client) error { return c.ResizeJob(ctx, j.id(), size) }, func() error {
		return fmt.Errorf("%w: %s", ErrJobEnded, j.name)
	}))
}

// feed copies r to the job. It is no error if the job takes no more.
func (j *Job) feed(ctx context.Context, r io.Reader) error {
	buf := make([]byte, attachPart)
	for {
		n, err := r.Read(buf)
		for rest := buf[:n]; len(rest) > 0; {
			n, err := j.Write(ctx, rest, false)
			rest = rest[n:]
			if errors.Is(err, ErrJobInput) || errors.Is(err, ErrJobEnded) {
				rest = nil // between two runs of --restart, or at the job's end, which follow reports
			} else if err != nil && !errors.Is(err, ErrBusy) {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// follow copies the output from now on, when it calls begin, until the job has ended.
func (j *Job) follow(ctx context.Context, o *AttachOptions, begin func()) (JobStatus, error) {
	out := joblog.NewLines(j.dir, j.name)
	defer func() { _ = out.Close() }() // it was only read
	type end struct {
		status JobStatus
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		st, err := j.Wait(ctx)
		ended <- end{st, err}
	}()
	tick := time.NewTicker(attachPause)
	defer tick.Stop()
	opened, final := time.Now(), (*end)(nil)
	if o.All {
		opened = time.Time{}
	}
	begin() // what the input leads to is output from now on
	if o.Attached != nil {
		o.Attached()
	}
	for {
		if err := j.copyOut(ctx, out.Reader, o, opened); err != nil {
			return JobStatus{}, err
		}
		if final != nil {
			return final.status, final.err
		}
		select {
		case e := <-ended:
			final = &e // what was written before that is there
		case <-ctx.Done():
			return JobStatus{}, ctx.Err()
		case <-tick.C:
		}
	}
}

// copyOut copies what is there and was written after since.
func (j *Job) copyOut(ctx context.Context, out *joblog.Reader, o *AttachOptions, since time.Time) error {
	for ctx.Err() == nil {
		p, err := out.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return Fail(fmt.Errorf("%w: %w; `msb job rm` removes it", ErrState, err))
		}
		to := o.Stdout
		if p.Stream == joblog.Stderr {
			to = o.Stderr
		}
		switch {
		case p.Time.Before(since):
		case p.Missing > 0 && o.Missing != nil:
			o.Missing(p.Missing)
		case p.Missing == 0 && to != nil:
			if _, err := to.Write(p.Data); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}
