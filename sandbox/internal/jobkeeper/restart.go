package jobkeeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/joblog"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Clock is the time of pauses between runs of a command.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time
}

type realClock struct{}

func (realClock) Now() time.Time                         { return time.Now() }
func (realClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

func (k *Keeper) clock() Clock {
	if k.Clock == nil {
		return realClock{}
	}
	return k.Clock
}

// run is one of a job's command, without its end.
type run struct {
	job    *state.StoredJob
	opts   agentclient.ExecOptions
	halted <-chan struct{} // closed once the command is not to be run again
	began  time.Time
	count  state.Restarts
	held   bool // the next run is in another machine
}

// restart runs the main job's command again as long as the policy says so, and returns how its last run ended. st and err
// are the end of the first.
func (k *Keeper) restart(r *run, st agentclient.ExitStatus, err error) (agentclient.ExitStatus, error) {
	for {
		k.died(r.job, st, err)
		if st.StartError != agentclient.Started { // it was there at the first start: as in docker, this ends it
			r.job.Reason = state.ShownText(st.Message)
		}
		gone := k.guestGone(err)
		if r.job.Name != state.MainJob || st.StartError != agentclient.Started || r.isHalted() || !gone && (err != nil || k.Ctx.Err() != nil) {
			return st, err
		}
		code := st.Code
		if err != nil { // the command ended with its guest, which counts as a failure
			code = failed
		}
		r.count.Policy = k.restartPolicy()
		pause, again := r.count.Next(k.clock().Now().Sub(r.began), code)
		if !again {
			return st, err
		}
		if !gone && !k.pause(r, pause) {
			if gone = k.guestGone(nil) && !r.isHalted(); !gone {
				return st, err
			}
		}
		if gone {
			r.held = true
			return st, err
		}
		r.job.Restarts = r.count.Count
		if err := r.job.Update(k.Dir); err != nil { // better a wrong count than no command
			k.Failed(err)
		}
		k.restarts(r.job)
		in := k.resume(r)
		r.began = k.clock().Now()
		st, err = k.Agent.Exec(k.Ctx, r.opts)
		in.close()
	}
}

// failed is the exit code that restart policies see of a command that ended with its guest.
const failed = 1

// guestGone reports whether the guest has ended by itself; err is that of a run, or nil.
func (k *Keeper) guestGone(err error) bool {
	if !k.Hold {
		return false
	}
	if cause := context.Cause(k.Ctx); cause != nil {
		return errors.Is(cause, agentclient.ErrAgentDead)
	}
	return errors.Is(err, agentclient.ErrAgentDead)
}

// hold leaves the command marked as running in its file.
func (k *Keeper) hold(r *run, out *joblog.Writer) {
	if err := out.Close(); err != nil {
		k.Failed(err)
	}
	r.job.OutputBytes, r.job.LostBytes = out.Total(), out.Lost()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = state.NewMainRun(r.job, &r.opts, r.count)
}

// Held is the main command that is to be run again in another machine; nil for none. It is known once Work is done.
func (k *Keeper) Held() *state.MainRun {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held
}

// Resume runs a main command that another Keeper held, with its output behind that of the runs before.
func (k *Keeper) Resume(m *state.MainRun) error {
	j := m.Job
	j.Restarts, j.Supervisor = m.Restarts.Count, k.Self
	out, err := joblog.Resume(k.Dir, j.Name, j.OutputBytes, j.LostBytes)
	if err == nil {
		err = j.Update(k.Dir)
	}
	if err != nil {
		return err
	}
	out.Room = k.Room
	halted := make(chan struct{})
	r := &run{job: &j, opts: m.Options(), halted: halted, count: m.Restarts}
	r.opts.Stdout, r.opts.Stderr = out.Stream(joblog.Stdout), out.Stream(joblog.Stderr)
	k.change(j.Name, func(live *liveJob) {
		live.started, live.halt = j.Started, sync.OnceFunc(func() { close(halted) })
	})
	k.restarts(&j)
	in := k.resume(r)
	k.Work.Go(func() {
		r.began = k.clock().Now()
		st, err := k.Agent.Exec(k.Ctx, r.opts)
		in.close()
		k.lead(r, out, st, err)
	})
	return nil
}

// pause waits before the next run, and reports whether there is to be one.
func (k *Keeper) pause(r *run, d time.Duration) bool {
	k.change(r.job.Name, func(live *liveJob) { live.pausing = true })
	select {
	case <-r.halted:
	case <-k.Ctx.Done():
	case <-k.clock().After(d):
	}
	return !r.isHalted() && k.Ctx.Err() == nil
}

// isHalted reports whether somebody wants the command not to be run again.
func (r *run) isHalted() bool {
	select {
	case <-r.halted:
		return true
	default:
		return false
	}
}

// resume gives the next run an input and a way for signals of its own: what was sent to the run before is not for this one.
func (k *Keeper) resume(r *run) *input {
	signals, resize, in := make(chan agentclient.Signal, 1), make(chan agentclient.Size, 1), newInput(r.opts.JobInput)
	r.opts.Stdin, r.opts.Signals, r.opts.Resize = in.reader(), signals, resize
	r.opts.OnStart = func() { k.event(r.job, agentclient.ExecStarted, nil) }
	k.change(r.job.Name, func(live *liveJob) {
		live.pausing, live.signals, live.resize, live.input = false, signals, resize, in
	})
	return in
}

func (k *Keeper) change(name string, do func(*liveJob)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.live == nil {
		k.live = map[string]liveJob{}
	}
	live := k.live[name]
	do(&live)
	k.live[name] = live
}

// halts reports whether a signal is meant to end a command for good.
func halts(s agentclient.Signal) bool { return s == agentclient.SIGKILL || s == agentclient.SIGTERM }
