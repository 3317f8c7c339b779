package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/joblog"
)

// MaxJobs bounds the jobs of a sandbox, those that have ended included: with joblog.MaxBytes for each it bounds what
// their output takes on the disk.
const MaxJobs = 64

// The errors about jobs, for errors.Is.
var (
	ErrJobName    = agentclient.ErrJobName
	ErrJobExists  = agentclient.ErrJobExists
	ErrNoJob      = agentclient.ErrNoJob
	ErrJobRunning = agentclient.ErrJobRunning
	ErrJobEnded   = agentclient.ErrJobEnded
	ErrJobLimit   = agentclient.ErrJobLimit
	ErrJobFiles   = agentclient.ErrJobFiles
)

// NotStartedError says that a job's program could not be started.
type NotStartedError = agentclient.NotStartedError

// CheckJobName says whether a job may have this name: it is part of the names of files (invariant 14).
func CheckJobName(name string) error {
	if CheckName(name) != nil {
		const shown = 80
		return fmt.Errorf("%w %.*q: use 1 to %d lower-case letters, digits and hyphens, such as build-1", ErrJobName, shown, name, maxNameLen)
	}
	return nil
}

// jobKeeper is the supervisor's side of jobs: it runs them in the guest and writes down their output and their end.
type jobKeeper struct {
	dir   string
	agent interface {
		Exec(ctx context.Context, o ExecOptions) (ExitStatus, error)
	}
	ctx  context.Context // the sandbox's life
	work *sync.WaitGroup
	self processID
	room func() (int64, error) // what their output may still take, in bytes
	// failed is told what could not be written down.
	failed func(error)
	again  time.Duration // between tries to write down an end; 0 is endAgain

	mu     sync.Mutex
	live   map[string]liveJob    // without those whose end is being written
	ended  map[string]*storedJob // whose end is not written down yet
	number int                   // of the last name that was chosen
}

// liveJob is a job that runs.
type liveJob struct {
	started time.Time
	signals chan<- agentclient.Signal
}

var _ agentclient.JobServer = (*jobKeeper)(nil)

func (s *supervisor) openJobs() error {
	dir := filepath.Join(s.plan.Dir, jobsDir)
	s.jobs = &jobKeeper{
		dir: dir, agent: s.agent, ctx: s.ctx, work: &s.work, self: identify(os.Getpid()),
		room:   func() (int64, error) { return spare(dir) },
		failed: func(err error) { fmt.Fprintln(os.Stderr, err) }, // the supervisor's log
	}
	return s.jobs.settle()
}

// settle writes down the end of jobs whose supervisor was killed: this one's lock says that it is gone.
func (k *jobKeeper) settle() error {
	names, err := listJobs(k.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		j, err := readJob(k.dir, name)
		if err == nil && j.State == JobRunning {
			j.State, j.Reason = JobLost, supervisorKilled
			err = j.update(k.dir)
		}
		if err != nil { // the sandbox is of use without it
			k.failed(err)
		}
	}
	return nil
}

// StartJob implements agentclient.JobServer.
func (k *jobKeeper) StartJob(ctx context.Context, name string, o ExecOptions) (string, error) {
	j := &storedJob{JobStatus: JobStatus{Command: shownCommand(o.Argv), State: JobRunning, Started: time.Now().UTC()}, Supervisor: k.self}
	signals := make(chan agentclient.Signal, 1)
	if err := k.admit(name, j, signals); err != nil {
		return "", err
	}
	out := joblog.NewWriter(k.dir, j.Name)
	out.Room = k.room
	started := make(chan error, 1)
	o.Stdin, o.Stdout, o.Stderr, o.Signals = nil, out.Stream(joblog.Stdout), out.Stream(joblog.Stderr), signals
	runs := false
	o.OnStart = func() { runs = true; started <- nil }
	k.work.Go(func() {
		st, err := k.agent.Exec(k.ctx, o)
		if !runs {
			if err == nil && st.StartError != agentclient.Started {
				err = &NotStartedError{Status: st}
			}
			started <- errors.Join(err, k.drop(j.Name)) // before the name is free: it is the caller's to choose again
			return
		}
		k.finish(j, out, st, err)
	})
	select {
	case err := <-started:
		if err != nil {
			return "", err
		}
		return j.Name, nil
	case <-ctx.Done(): // the job starts all the same, as a caller that was killed leaves it
		return "", ctx.Err()
	}
}

// admit takes a name for the job and writes its file.
func (k *jobKeeper) admit(name string, j *storedJob, signals chan agentclient.Signal) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return context.Cause(k.ctx)
	}
	if err := os.Mkdir(k.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: %w", ErrJobFiles, err)
	}
	names, err := listJobs(k.dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrJobFiles, err)
	}
	if len(names) >= MaxJobs {
		return fmt.Errorf("%w: the sandbox has %d; `msb job rm NAME JOB` removes one that has ended", ErrJobLimit, MaxJobs)
	}
	if j.Name, err = k.choose(name, names); err != nil {
		return err
	}
	// What a removal left that was killed belongs to no job.
	if err := errors.Join(joblog.Remove(k.dir, j.Name), j.create(k.dir)); err != nil {
		return fmt.Errorf("%w: %w", ErrJobFiles, err)
	}
	if k.live == nil {
		k.live = map[string]liveJob{}
	}
	k.live[j.Name] = liveJob{j.Started, signals}
	return nil
}

// choose checks a name, or makes one: the number after the highest there was.
func (k *jobKeeper) choose(name string, names []string) (string, error) {
	const prefix = "job-"
	if name != "" {
		err := CheckJobName(name)
		for _, n := range names {
			if n == name {
				err = fmt.Errorf("%w: %s; `msb job rm NAME %s` removes it once it has ended", ErrJobExists, name, name)
			}
		}
		return name, err
	}
	for _, n := range names {
		rest, ok := strings.CutPrefix(n, prefix)
		if number, err := strconv.Atoi(rest); ok && err == nil && number < math.MaxInt32 {
			k.number = max(k.number, number)
		}
	}
	k.number++
	return prefix + strconv.Itoa(k.number), nil
}

// drop forgets a job that did not start.
func (k *jobKeeper) drop(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.live, name)
	return removeJob(k.dir, name)
}

// finish writes down how a job ended.
func (k *jobKeeper) finish(j *storedJob, out *joblog.Writer, st ExitStatus, err error) {
	err2 := out.Close()
	now := time.Now().UTC()
	j.Ended, j.OutputBytes, j.LostBytes = &now, out.Total(), out.Lost()
	j.Code, j.Signal, j.TimedOut, j.OOMKilled = st.Code, int(st.Signal), st.TimedOut, st.OOMKilled
	switch {
	case err != nil && k.ctx.Err() != nil:
		j.State, j.Reason = JobLost, "the sandbox ended"
	case err != nil:
		j.State, j.Reason = JobLost, shownReason(err)
	case st.Signal != 0:
		j.State = JobKilled
	default:
		j.State = JobExited
	}
	k.mu.Lock()
	delete(k.live, j.Name)
	if k.ended == nil {
		k.ended = map[string]*storedJob{}
	}
	k.ended[j.Name] = j
	k.mu.Unlock()
	k.writeEnd(j, err2)
}

// endAgain is the time between tries to write down a job's end. Until one succeeds the job seems to run.
const endAgain = time.Second

// writeEnd writes down a job's end, until that is done, the job is removed or the sandbox ends.
func (k *jobKeeper) writeEnd(j *storedJob, told error) {
	tick := time.NewTicker(cmp.Or(k.again, endAgain))
	defer tick.Stop()
	err := k.tryEnd(j)
	if told = errors.Join(told, err); told != nil { // said once
		k.failed(fmt.Errorf("job %s: %w", j.Name, told))
	}
	for last := false; err != nil && !last; err = k.tryEnd(j) {
		select {
		case <-k.ctx.Done():
			last = true
		case <-tick.C:
		}
	}
}

func (k *jobKeeper) tryEnd(j *storedJob) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended[j.Name] != j { // removed
		return nil
	}
	err := j.update(k.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the file may be the fault, and not the disk
		if e := j.create(k.dir); e != nil {
			return errors.Join(err, e)
		}
	}
	delete(k.ended, j.Name)
	return nil
}

// running is how many jobs run; of one that ended the end may still be being written down.
func (k *jobKeeper) running() int {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.live)
}

// SignalJob implements agentclient.JobServer.
func (k *jobKeeper) SignalJob(ctx context.Context, id agentclient.JobID, s agentclient.Signal) error {
	const highest = 64 // SIGRTMAX
	if s < 1 || s > highest {
		return fmt.Errorf("%w: signal %d: it must be 1 to %d", agentclient.ErrRefused, s, highest)
	}
	name := id.Name
	k.mu.Lock()
	live, err := k.check(id)
	k.mu.Unlock()
	if err != nil {
		return err
	}
	if live.signals == nil {
		return fmt.Errorf("%w: %s", ErrJobEnded, name)
	}
	late := time.NewTimer(signalWait)
	defer late.Stop()
	select {
	case live.signals <- s:
		return nil
	case <-late.C:
		return fmt.Errorf("%w: the guest took no signal for job %s within %s; `msb stop %s` ends the sandbox with all its jobs",
			agentclient.ErrBusy, name, signalWait, k.sandboxName())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// signalWait is how long a guest may take to accept a signal. One that reads none would hold up msb job kill for ever.
const signalWait = 10 * time.Second

func (k *jobKeeper) sandboxName() string { return filepath.Base(filepath.Dir(k.dir)) }

// RemoveJob implements agentclient.JobServer.
func (k *jobKeeper) RemoveJob(_ context.Context, id agentclient.JobID) error {
	name := id.Name
	k.mu.Lock()
	defer k.mu.Unlock()
	live, err := k.check(id)
	if err != nil {
		return err
	}
	if live.signals != nil {
		return fmt.Errorf("%w: %s; `msb job kill %s %s` first, or remove it with --force", ErrJobRunning, name, k.sandboxName(), name)
	}
	if err := removeJob(k.dir, name); err != nil {
		return fmt.Errorf("%w: %w", ErrJobFiles, err)
	}
	delete(k.ended, name)
	return nil
}

// check reports whether that job is there, in whatever state, and gives it if it runs. The caller holds mu, so that it
// stays.
func (k *jobKeeper) check(id agentclient.JobID) (liveJob, error) {
	if err := CheckJobName(id.Name); err != nil {
		return liveJob{}, err
	}
	live, runs := k.live[id.Name]
	started := live.started
	if !runs {
		j, err := readJob(k.dir, id.Name)
		if errors.Is(err, ErrState) { // one that is damaged can be removed
			return live, nil
		}
		if err != nil {
			return live, err
		}
		started = j.Started
	}
	if !id.Started.IsZero() && !started.Equal(id.Started) {
		return live, anotherJob(id.Name)
	}
	return live, nil
}

// anotherJob says that a job was removed and made again under its name.
func anotherJob(name string) error {
	return fmt.Errorf("%w: %s: it was removed, and another job has its name", ErrNoJob, name)
}
