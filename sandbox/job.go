package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
	"golang.org/x/sys/unix"
)

// MainJob is the name of the job that `msb run -d` makes of the command: `msb logs` shows its output.
const MainJob = state.MainJob

// Job is a detached process of a sandbox and its output, which the sandbox's supervisor keeps. It is there until it, or
// the sandbox, is removed. Its methods may be called from several goroutines.
type Job struct {
	name    string
	sandbox string // "" for one without a name
	home    *Home
	dir     string
	started time.Time           // distinguishes it from a later job of the same name; zero if the job's file is damaged
	client  *agentclient.Client // nil: a session is opened where one is needed
}

// StartJob starts a process that runs on when this session ends, and returns when its program runs. The caller chooses the
// name; "" is the next free number. Of opts it takes no streams, no Resize and no Signals: the output is kept, and with
// JobInput standard input comes by Job.Write. ErrJobName, ErrJobExists, ErrJobLimit, and a *NotStartedError if the program
// can't be run.
func (s *Sandbox) StartJob(ctx context.Context, name string, opts ExecOptions) (*Job, error) {
	if err := noPlaceholder(opts.Env, s.info.Placeholders); err != nil {
		return nil, Fail(err)
	}
	name, err := s.client.StartJob(ctx, name, opts)
	if err != nil {
		return nil, Fail(err)
	}
	j, err := s.Job(name)
	if errors.Is(err, ErrNoJob) { // removed already
		err = nil
	}
	return j, err
}

// Jobs are the sandbox's jobs in the order in which they started, with those that have ended.
func (s *Sandbox) Jobs() ([]JobStatus, error) {
	all, err := jobsIn(filepath.Join(s.run.dir, state.JobsDir))
	return all, Fail(err)
}

// Job is the job of that name. ErrNoJob.
func (s *Sandbox) Job(name string) (*Job, error) {
	j := &Job{name: name, sandbox: s.name, home: s.home, dir: filepath.Join(s.run.dir, state.JobsDir), client: s.client}
	return j, j.find()
}

// Jobs are those of the sandbox of that name, whether it runs or not.
func (h *Home) Jobs(sandbox string) ([]JobStatus, error) {
	if _, err := loadStored(h, sandbox); err != nil {
		return nil, Fail(err)
	}
	all, err := jobsIn(namedPath(h, sandbox, state.JobsDir))
	return all, Fail(err)
}

// Job is a job of the sandbox of that name, whether that runs or not. ErrNoSandbox, ErrNoJob.
func (h *Home) Job(sandbox, name string) (*Job, error) {
	if _, err := loadStored(h, sandbox); err != nil {
		return nil, Fail(err)
	}
	j := &Job{name: name, sandbox: sandbox, home: h, dir: namedPath(h, sandbox, state.JobsDir)}
	return j, j.find()
}

// find determines which job this is, of those that have had the name one after another.
func (j *Job) find() error {
	stored, err := j.read()
	if err == nil {
		j.started = stored.Started
	}
	return err
}

func (j *Job) read() (*state.StoredJob, error) {
	if err := CheckJobName(j.name); err != nil {
		return nil, Fail(err)
	}
	stored, err := state.ReadJob(j.dir, j.name)
	return stored, Fail(err)
}

func jobsIn(dir string) ([]JobStatus, error) {
	names, err := state.ListJobs(dir)
	if err != nil {
		return nil, err
	}
	all := make([]JobStatus, 0, len(names))
	for _, name := range names {
		j, err := state.ReadJob(dir, name)
		if errors.Is(err, ErrNoJob) {
			continue // removed just now
		}
		if err != nil {
			j = &state.StoredJob{JobStatus: JobStatus{Name: name, State: JobDamaged, Reason: err.Error()}}
		}
		all = append(all, j.Current())
	}
	sortJobs(all)
	return all, nil
}

func (j *Job) id() agentclient.JobID { return agentclient.JobID{Name: j.name, Started: j.started} }

// Name is the job's name.
func (j *Job) Name() string { return j.name }

// Status is the job's current state. ErrNoJob once it is removed, even if another job has its name.
func (j *Job) Status() (JobStatus, error) {
	stored, err := j.read()
	if err != nil {
		return JobStatus{}, err
	}
	if !stored.Started.Equal(j.started) {
		return JobStatus{}, Fail(state.AnotherJob(j.name))
	}
	return stored.Current(), nil
}

// current is Status, also for a job that was removed, since a sandbox of Config.AutoRemove is removed with its main job.
// held is the job's file, opened before, or nil.
func (j *Job) current(held *os.File) (JobStatus, error) {
	st, err := j.Status()
	if held == nil || !errors.Is(err, ErrNoJob) {
		return st, err
	}
	if last, e := state.LastStatus(held); e == nil && last.State != JobRunning && last.Started.Equal(j.started) {
		return last.JobStatus, nil
	}
	return st, err
}

// jobPause is the time between two checks of a job that is followed or waited for. The checks read files, so that no
// process has to answer.
const jobPause = 50 * time.Millisecond

// Wait returns when the job has ended, for any reason. For a lost job it returns ErrJobLost with the status, for one whose
// end can't be recorded, because the disk became read-only, ErrJobFiles.
func (j *Job) Wait(ctx context.Context) (JobStatus, error) {
	tick := time.NewTicker(jobPause)
	defer tick.Stop()
	held, err := os.OpenFile(state.JobPath(j.dir, j.name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err == nil {
		defer func() { _ = held.Close() }()
	}
	for {
		st, err := j.current(held)
		switch {
		case err != nil:
			return st, err
		case st.State == JobLost:
			return st, Fail(fmt.Errorf("%w: %s: %s; its output to that point is kept", ErrJobLost, j.name, st.Reason))
		case st.State != JobRunning:
			return st, nil
		}
		if err := j.recordable(); err != nil {
			return st, err
		}
		select {
		case <-ctx.Done():
			return st, ctx.Err()
		case <-tick.C:
		}
	}
}

// recordable fails if the job's end can't be written down, so that a job that has ended would seem to run for ever.
func (j *Job) recordable() error {
	if errors.Is(unix.Access(j.dir, unix.W_OK), unix.EROFS) {
		return Fail(fmt.Errorf("%w: the disk of %s is read-only, so that neither output nor the end of job %s is recorded", ErrJobFiles, j.dir, j.name))
	}
	return nil
}

// Kill sends a signal to the job's process group. ErrJobEnded.
func (j *Job) Kill(ctx context.Context, sig agentclient.Signal) error {
	return Fail(j.call(ctx, func(c *agentclient.Client) error { return c.SignalJob(ctx, j.id(), sig) }, func() error {
		return fmt.Errorf("%w: %s", ErrJobEnded, j.name)
	}))
}

// Write writes to the job's standard input and, with eof, closes it afterwards. It returns how many bytes the job has
// taken, on error too. ErrJobInput if it was started without ExecOptions.JobInput or has had its end of file, ErrJobEnded,
// and ErrBusy if it has taken nothing for five seconds: the rest may be written again then.
func (j *Job) Write(ctx context.Context, p []byte, eof bool) (n int, err error) {
	err = j.call(ctx, func(c *agentclient.Client) error { n, err = c.WriteJob(ctx, j.id(), p, eof); return err }, func() error {
		return fmt.Errorf("%w: %s", ErrJobEnded, j.name)
	})
	return n, Fail(err)
}

// Remove deletes a job that has ended, and its output. ErrJobRunning.
func (j *Job) Remove(ctx context.Context) error {
	return Fail(j.call(ctx, func(c *agentclient.Client) error { return c.RemoveJob(ctx, j.id()) }, func() error {
		run, err := lockSettled(ctx, j.home, j.sandbox) // against a start, whose supervisor reads all jobs
		if err != nil {
			return err
		}
		if _, err = j.Status(); err == nil || errors.Is(err, ErrState) { // nobody else has removed it
			err = state.RemoveJob(j.dir, j.name)
		}
		return errors.Join(err, run.lock.Close())
	}))
}

// call asks the supervisor, or does stopped if there is none.
func (j *Job) call(ctx context.Context, running func(*agentclient.Client) error, stopped func() error) error {
	if _, err := j.Status(); err != nil && !errors.Is(err, ErrState) { // one that is damaged can be removed
		return err
	}
	if j.client != nil {
		return running(j.client)
	}
	s, err := connectNamed(ctx, j.home, j.sandbox)
	if errors.Is(err, ErrNotRunning) {
		return stopped()
	}
	if err != nil {
		return err
	}
	return errors.Join(running(s.client), s.Close())
}

// sortJobs orders by the time of the start.
func sortJobs(all []JobStatus) {
	slices.SortStableFunc(all, func(a, b JobStatus) int { return a.Started.Compare(b.Started) })
}
