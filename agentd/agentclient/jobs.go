package agentclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/msb-project/msb/agentd/agentpb"
)

// Errors about jobs. The session goes on after each.
var (
	ErrJobName    = errors.New("unusable job name")
	ErrJobExists  = errors.New("the job exists already")
	ErrNoJob      = errors.New("there is no such job")
	ErrJobRunning = errors.New("the job is running")
	ErrJobEnded   = errors.New("the job has ended")
	ErrJobLimit   = errors.New("too many jobs")
	ErrJobFiles   = errors.New("the job's files can't be written")
	ErrJobInput   = errors.New("the job takes no standard input")
)

// NotStartedError says that a job's program could not be started.
type NotStartedError struct {
	// Status has the code, 126 or 127, and the guest's sentence.
	Status ExitStatus
}

// Error implements error.
func (e *NotStartedError) Error() string { return e.Status.Message }

// JobID distinguishes jobs that have had the same name one after another.
type JobID struct {
	Name string
	// Started is when it started; the zero time is any of them.
	Started time.Time
}

func jobID(name string, started int64) JobID {
	id := JobID{Name: name}
	if started != 0 {
		id.Started = time.Unix(0, started)
	}
	return id
}

// started is what travels of a JobID's time.
func (id JobID) started() int64 {
	if id.Started.IsZero() {
		return 0
	}
	return id.Started.UnixNano()
}

// JobServer keeps jobs for clients of Serve. Its errors wrap those above,
// ErrRefused, ErrBusy or *NotStartedError.
type JobServer interface {
	// StartJob returns the job's name when its program runs.
	StartJob(ctx context.Context, name string, o ExecOptions) (string, error)
	SignalJob(ctx context.Context, id JobID, s Signal) error
	// WriteJob returns how many bytes of p the job has taken, on error too. eof closes its standard input behind p.
	WriteJob(ctx context.Context, id JobID, p []byte, eof bool) (int, error)
	// ResizeJob sets the size of the job's terminal; a job without one ignores it.
	ResizeJob(ctx context.Context, id JobID, s Size) error
	RemoveJob(ctx context.Context, id JobID) error
}

// jobErrors are the sentinels that travel.
var jobErrors = []struct {
	sentinel error
	code     agentpb.JobError
}{
	{ErrJobName, agentpb.JobError_JOB_ERROR_NAME},
	{ErrJobExists, agentpb.JobError_JOB_ERROR_EXISTS},
	{ErrNoJob, agentpb.JobError_JOB_ERROR_UNKNOWN},
	{ErrJobRunning, agentpb.JobError_JOB_ERROR_RUNNING},
	{ErrJobEnded, agentpb.JobError_JOB_ERROR_ENDED},
	{ErrJobLimit, agentpb.JobError_JOB_ERROR_LIMIT},
	{ErrJobFiles, agentpb.JobError_JOB_ERROR_FILES},
	{ErrRefused, agentpb.JobError_JOB_ERROR_REFUSED},
	{ErrBusy, agentpb.JobError_JOB_ERROR_BUSY},
	{ErrJobInput, agentpb.JobError_JOB_ERROR_NO_INPUT},
}

// jobText is an error of jobErrors with its words as they are.
type jobText struct {
	text     string
	sentinel error
}

func (e *jobText) Error() string { return e.text }
func (e *jobText) Unwrap() error { return e.sentinel }

// StartJob starts a detached process whose output the supervisor keeps, and returns its name when the program runs. If the
// name is empty, the supervisor chooses one. It ignores o's streams and channels.
func (c *Client) StartJob(ctx context.Context, name string, o ExecOptions) (string, error) {
	if len(o.Argv) == 0 || o.Argv[0] == "" {
		return "", fmt.Errorf("%w: no program named", ErrRefused)
	}
	start := o.start().GetStart()
	start.Stdin = o.JobInput
	r, err := c.jobs.StartJob(ctx, &agentpb.StartJobRequest{Name: name, Exec: start})
	return r.GetName(), c.jobError(ctx, r, err)
}

// SignalJob sends a signal to the process group of a job.
func (c *Client) SignalJob(ctx context.Context, id JobID, s Signal) error {
	r, err := c.jobs.SignalJob(ctx, &agentpb.SignalJobRequest{Name: id.Name, Started: id.started(), Signal: uint32(s)})
	return c.jobError(ctx, r, err)
}

// WriteJob writes to a job's standard input and, with eof, closes it afterwards. It returns how many bytes the job has
// taken, on error too. ErrJobInput if it was started without JobInput, or has had its end of file; ErrBusy if it takes
// nothing for some seconds, and may be called again then.
func (c *Client) WriteJob(ctx context.Context, id JobID, p []byte, eof bool) (int, error) {
	written := 0
	for {
		part := p[written:min(len(p), written+maxJobInput)]
		last := written+len(part) == len(p)
		r, err := c.jobs.WriteJob(ctx, &agentpb.WriteJobRequest{Name: id.Name, Started: id.started(), Data: part, Eof: eof && last})
		written += min(int(r.GetWritten()), len(part))
		if err := c.jobError(ctx, r.GetResult(), err); err != nil || last {
			return written, err
		}
	}
}

// maxJobInput is how many bytes of standard input one message holds.
const maxJobInput = 64 << 10

// ResizeJob sets the size of a job's terminal.
func (c *Client) ResizeJob(ctx context.Context, id JobID, s Size) error {
	r, err := c.jobs.ResizeJob(ctx, &agentpb.ResizeJobRequest{Name: id.Name, Started: id.started(), Size: s.message()})
	return c.jobError(ctx, r, err)
}

// RemoveJob deletes a job that has ended, and its output.
func (c *Client) RemoveJob(ctx context.Context, id JobID) error {
	r, err := c.jobs.RemoveJob(ctx, &agentpb.RemoveJobRequest{Name: id.Name, Started: id.started()})
	return c.jobError(ctx, r, err)
}

func (c *Client) jobError(ctx context.Context, r *agentpb.JobResponse, err error) error {
	if err != nil {
		return c.callError(ctx, err)
	}
	if r.GetError() == agentpb.JobError_JOB_ERROR_UNSPECIFIED {
		return nil
	}
	if r.GetError() == agentpb.JobError_JOB_ERROR_NOT_STARTED {
		return &NotStartedError{Status: exitStatus(r.GetExit())}
	}
	for _, e := range jobErrors {
		if e.code == r.GetError() {
			text := &jobText{guestText(r.GetMessage()), e.sentinel}
			if errors.Is(e.sentinel, ErrJobFiles) && strings.HasSuffix(text.text, syscall.ENOSPC.Error()) {
				text.sentinel = errors.Join(ErrJobFiles, syscall.ENOSPC) // which has an exit code of its own
			}
			return text
		}
	}
	return fmt.Errorf("%w: %s", ErrVersion, guestText(r.GetMessage()))
}

// jobsAdapter serves a JobServer.
type jobsAdapter struct {
	agentpb.UnimplementedJobsServer
	jobs JobServer
}

var _ agentpb.JobsServer = (*jobsAdapter)(nil)

// StartJob implements agentpb.JobsServer.
func (a *jobsAdapter) StartJob(ctx context.Context, r *agentpb.StartJobRequest) (*agentpb.JobResponse, error) {
	o := execOptions(r.GetExec())
	o.JobInput = r.GetExec().GetStdin()
	name, err := a.jobs.StartJob(ctx, r.GetName(), o)
	return jobResponse(name, err)
}

// SignalJob implements agentpb.JobsServer.
func (a *jobsAdapter) SignalJob(ctx context.Context, r *agentpb.SignalJobRequest) (*agentpb.JobResponse, error) {
	return jobResponse(r.GetName(), a.jobs.SignalJob(ctx, jobID(r.GetName(), r.GetStarted()), Signal(r.GetSignal())))
}

// WriteJob implements agentpb.JobsServer.
func (a *jobsAdapter) WriteJob(ctx context.Context, r *agentpb.WriteJobRequest) (*agentpb.WriteJobResponse, error) {
	n, err := 0, fmt.Errorf("%w: more than %d bytes at once", ErrRefused, maxJobInput)
	if len(r.GetData()) <= maxJobInput {
		n, err = a.jobs.WriteJob(ctx, jobID(r.GetName(), r.GetStarted()), r.GetData(), r.GetEof())
	}
	result, err := jobResponse(r.GetName(), err)
	return &agentpb.WriteJobResponse{Written: uint32(n), Result: result}, err
}

// ResizeJob implements agentpb.JobsServer.
func (a *jobsAdapter) ResizeJob(ctx context.Context, r *agentpb.ResizeJobRequest) (*agentpb.JobResponse, error) {
	return jobResponse(r.GetName(), a.jobs.ResizeJob(ctx, jobID(r.GetName(), r.GetStarted()), sizeOf(r.GetSize())))
}

// RemoveJob implements agentpb.JobsServer.
func (a *jobsAdapter) RemoveJob(ctx context.Context, r *agentpb.RemoveJobRequest) (*agentpb.JobResponse, error) {
	return jobResponse(r.GetName(), a.jobs.RemoveJob(ctx, jobID(r.GetName(), r.GetStarted())))
}

// jobResponse puts an error of jobErrors into the answer. Any other is the call's error.
func jobResponse(name string, err error) (*agentpb.JobResponse, error) {
	if err == nil {
		return &agentpb.JobResponse{Name: name}, nil
	}
	var not *NotStartedError
	if errors.As(err, &not) {
		e := &agentpb.Exit{Code: int32(not.Status.Code), Message: not.Status.Message, StartError: agentpb.StartError_START_ERROR_NOT_EXECUTABLE}
		if not.Status.StartError == NotFound {
			e.StartError = agentpb.StartError_START_ERROR_NOT_FOUND
		}
		return &agentpb.JobResponse{Error: agentpb.JobError_JOB_ERROR_NOT_STARTED, Exit: e}, nil
	}
	for _, e := range jobErrors {
		if errors.Is(err, e.sentinel) {
			return &agentpb.JobResponse{Error: e.code, Message: err.Error()}, nil
		}
	}
	return nil, statusOf(err)
}
