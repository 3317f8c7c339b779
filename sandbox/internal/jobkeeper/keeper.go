package jobkeeper

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
	"github.com/msb-project/msb/sandbox/internal/state"
)

// MaxJobs bounds the jobs of a sandbox, those that have ended included: with joblog.MaxBytes for each it bounds what
// their output takes on the disk.
const MaxJobs = 64

// Keeper is the supervisor's side of jobs: it runs them in the guest and writes down their output and their end.
type Keeper struct {
	Dir   string
	Agent interface {
		Exec(ctx context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error)
	}
	Ctx  context.Context // the sandbox's life
	Work *sync.WaitGroup
	Self state.ProcessID
	Room func() (int64, error) // what their output may still take, in bytes
	// Failed gets errors of writing a job's files.
	Failed func(error)
	// Ended gets the name of a job when its end is recorded, or that failed; may be nil.
	Ended func(name string)
	// Event gets the events of jobs, and must return at once; may be nil.
	Event func(Event)
	Again time.Duration // between tries to write down an end; 0 is endAgain
	// Restart says when the main job's command is run again; Clock is of the pauses before that, nil for the real one.
	Restart state.Restart
	Clock   Clock
	// Hold keeps a main command that is to be run again marked as running when its guest has ended; Held returns it
	// then.
	Hold bool

	mu     sync.Mutex
	live   map[string]liveJob          // without those whose end is being written
	ended  map[string]*state.StoredJob // whose end is not written down yet
	number int                         // of the last name that was chosen
	held   *state.MainRun
}

// liveJob is a job that runs.
type liveJob struct {
	started time.Time
	signals chan<- agentclient.Signal
	input   *input // nil: it has none
	resize  chan agentclient.Size
	halt    func() // has the command not run again
	pausing bool   // the command has ended and is about to be run again
}

var _ agentclient.JobServer = (*Keeper)(nil)

// Settle writes down the end of jobs whose supervisor was killed: this one's lock says that it is gone. again is left
// running, for Resume; nil for none.
func (k *Keeper) Settle(again *state.MainRun) error {
	names, err := state.ListJobs(k.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		j, err := state.ReadJob(k.Dir, name)
		if err == nil && j.State == state.JobRunning && (again == nil || name != again.Job.Name) {
			j.State, j.Reason = state.JobLost, state.SupervisorKilled
			err = j.Update(k.Dir)
		}
		if err != nil { // the sandbox is of use without it
			k.Failed(err)
		}
	}
	return nil
}

// StartJob implements agentclient.JobServer.
func (k *Keeper) StartJob(ctx context.Context, name string, o agentclient.ExecOptions) (string, error) {
	j := &state.StoredJob{JobStatus: state.JobStatus{Command: state.ShownCommand(o.Argv), State: state.JobRunning, Started: time.Now().UTC(), TTY: o.TTY, Input: o.JobInput}, Supervisor: k.Self}
	signals, resize := make(chan agentclient.Signal, 1), make(chan agentclient.Size, 1)
	in := newInput(o.JobInput)
	halted := make(chan struct{})
	if err := k.admit(name, j, liveJob{signals: signals, input: in, resize: resize, halt: sync.OnceFunc(func() { close(halted) })}); err != nil {
		return "", err
	}
	out := joblog.NewWriter(k.Dir, j.Name)
	out.Room = k.Room
	started := make(chan error, 1)
	o.Stdin, o.Stdout, o.Stderr, o.Signals = in.reader(), out.Stream(joblog.Stdout), out.Stream(joblog.Stderr), signals
	o.Resize = resize
	runs := false
	o.OnStart = func() { runs = true; k.event(j, agentclient.ExecStarted, nil); started <- nil }
	k.event(j, agentclient.ExecCreated, nil)
	k.Work.Go(func() {
		began := k.clock().Now()
		st, err := k.Agent.Exec(k.Ctx, o)
		in.close()
		if !runs {
			if err == nil && st.StartError != agentclient.Started {
				err = &state.NotStartedError{Status: st}
			}
			k.died(j, st, err)
			started <- errors.Join(err, k.drop(j.Name)) // before the name is free: it is the caller's to choose again
			return
		}
		k.lead(&run{job: j, opts: o, halted: halted, began: began}, out, st, err)
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

// lead handles the end of a command's first run, with st and err, and any further runs.
func (k *Keeper) lead(r *run, out *joblog.Writer, st agentclient.ExitStatus, err error) {
	st, err = k.restart(r, st, err)
	if r.held {
		k.hold(r, out)
		return
	}
	k.finish(r.job, out, st, err)
	if k.Ended != nil {
		k.Ended(r.job.Name)
	}
}

// admit takes a name for the job and writes its file.
func (k *Keeper) admit(name string, j *state.StoredJob, live liveJob) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Ctx.Err() != nil {
		return context.Cause(k.Ctx)
	}
	if err := os.Mkdir(k.Dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: %w", state.ErrJobFiles, err)
	}
	names, err := state.ListJobs(k.Dir)
	if err != nil {
		return fmt.Errorf("%w: %w", state.ErrJobFiles, err)
	}
	if len(names) >= MaxJobs {
		return fmt.Errorf("%w: the sandbox has %d; `msb job rm NAME JOB` removes one that has ended", state.ErrJobLimit, MaxJobs)
	}
	if j.Name, err = k.choose(name, names); err != nil {
		return err
	}
	// What a removal left that was killed belongs to no job.
	if err := errors.Join(joblog.Remove(k.Dir, j.Name), j.Create(k.Dir)); err != nil {
		return fmt.Errorf("%w: %w", state.ErrJobFiles, err)
	}
	if k.live == nil {
		k.live = map[string]liveJob{}
	}
	live.started = j.Started
	k.live[j.Name] = live
	return nil
}

// choose checks a name, or makes one: the number after the highest there was.
func (k *Keeper) choose(name string, names []string) (string, error) {
	const prefix = "job-"
	if name != "" {
		err := state.CheckJobName(name)
		for _, n := range names {
			if n == name {
				err = fmt.Errorf("%w: %s; `msb job rm NAME %s` removes it once it has ended", state.ErrJobExists, name, name)
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
func (k *Keeper) drop(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.live, name)
	return state.RemoveJob(k.Dir, name)
}

// finish writes down how a job ended.
func (k *Keeper) finish(j *state.StoredJob, out *joblog.Writer, st agentclient.ExitStatus, err error) {
	err2 := out.Close()
	now := time.Now().UTC()
	j.Ended, j.OutputBytes, j.LostBytes = &now, out.Total(), out.Lost()
	j.Code, j.Signal, j.TimedOut, j.OOMKilled = st.Code, int(st.Signal), st.TimedOut, st.OOMKilled
	switch {
	case err != nil && k.Ctx.Err() != nil:
		j.State, j.Reason = state.JobLost, "the sandbox ended"
	case err != nil:
		j.State, j.Reason = state.JobLost, state.ShownReason(err)
	case st.Signal != 0:
		j.State = state.JobKilled
	default:
		j.State = state.JobExited
	}
	k.mu.Lock()
	delete(k.live, j.Name)
	if k.ended == nil {
		k.ended = map[string]*state.StoredJob{}
	}
	k.ended[j.Name] = j
	k.mu.Unlock()
	k.writeEnd(j, err2)
}

// endAgain is the time between tries to write down a job's end. Until one succeeds the job seems to run.
const endAgain = time.Second

// writeEnd writes down a job's end, until that is done, the job is removed or the sandbox ends.
func (k *Keeper) writeEnd(j *state.StoredJob, told error) {
	tick := time.NewTicker(cmp.Or(k.Again, endAgain))
	defer tick.Stop()
	err := k.tryEnd(j)
	if told = errors.Join(told, err); told != nil { // said once
		k.Failed(fmt.Errorf("job %s: %w", j.Name, told))
	}
	for last := false; err != nil && !last; err = k.tryEnd(j) {
		select {
		case <-k.Ctx.Done():
			last = true
		case <-tick.C:
		}
	}
}

func (k *Keeper) tryEnd(j *state.StoredJob) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended[j.Name] != j { // removed
		return nil
	}
	err := j.Update(k.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // the file may be the fault, and not the disk
		if e := j.Create(k.Dir); e != nil {
			return errors.Join(err, e)
		}
	}
	delete(k.ended, j.Name)
	return nil
}

// Running is how many jobs run; of one that ended the end may still be being written down.
func (k *Keeper) Running() int {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.live)
}

// SignalJob implements agentclient.JobServer.
func (k *Keeper) SignalJob(ctx context.Context, id agentclient.JobID, s agentclient.Signal) error {
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
		return fmt.Errorf("%w: %s", state.ErrJobEnded, name)
	}
	if halts(s) {
		live.halt()
	}
	if live.pausing {
		if halts(s) {
			return nil
		}
		return fmt.Errorf("%w: %s; --restart runs it again soon", state.ErrJobEnded, name)
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

func (k *Keeper) sandboxName() string { return filepath.Base(filepath.Dir(k.Dir)) }

// ResizeJob implements agentclient.JobServer.
func (k *Keeper) ResizeJob(_ context.Context, id agentclient.JobID, s agentclient.Size) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	live, err := k.check(id)
	if err != nil {
		return err
	}
	if live.signals == nil {
		return fmt.Errorf("%w: %s", state.ErrJobEnded, id.Name)
	}
	select {
	case <-live.resize: // which the guest has not taken yet: the newest counts
	default:
	}
	live.resize <- s
	return nil
}

// RemoveJob implements agentclient.JobServer.
func (k *Keeper) RemoveJob(_ context.Context, id agentclient.JobID) error {
	name := id.Name
	k.mu.Lock()
	defer k.mu.Unlock()
	live, err := k.check(id)
	if err != nil {
		return err
	}
	if live.signals != nil {
		return fmt.Errorf("%w: %s; `msb job kill %s %s` first, or remove it with --force", state.ErrJobRunning, name, k.sandboxName(), name)
	}
	if err := state.RemoveJob(k.Dir, name); err != nil {
		return fmt.Errorf("%w: %w", state.ErrJobFiles, err)
	}
	delete(k.ended, name)
	return nil
}

// check reports whether that job is there, in whatever state, and gives it if it runs. The caller holds mu, so that it
// stays.
func (k *Keeper) check(id agentclient.JobID) (liveJob, error) {
	if err := state.CheckJobName(id.Name); err != nil {
		return liveJob{}, err
	}
	live, runs := k.live[id.Name]
	started := live.started
	if !runs {
		j, err := state.ReadJob(k.Dir, id.Name)
		if errors.Is(err, state.ErrState) { // one that is damaged can be removed
			return live, nil
		}
		if err != nil {
			return live, err
		}
		started = j.Started
	}
	if !id.Started.IsZero() && !started.Equal(id.Started) {
		return live, state.AnotherJob(id.Name)
	}
	return live, nil
}
