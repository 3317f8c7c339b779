package jobs

import (
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
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
}

// restart runs the main job's command again as long as the policy says so, and returns how its last run ended. st and err
// are the end of the first.
func (k *Keeper) restart(r run, st agentclient.ExitStatus, err error) (agentclient.ExitStatus, error) {
	var count state.Restarts
	for {
		k.died(r.job, st, err)
		if st.StartError != agentclient.Started { // it was there at the first start: as in docker, this ends it
			r.job.Reason = state.ShownText(st.Message)
		}
		if r.job.Name != state.MainJob || err != nil || k.over(&r) || st.StartError != agentclient.Started {
			return st, err
		}
		count.Policy = k.restartPolicy()
		pause, again := count.Next(k.clock().Now().Sub(r.began), st.Code)
		if !again || !k.pause(&r, pause) {
			return st, err
		}
		r.job.Restarts = count.Count
		if err := r.job.Update(k.Dir); err != nil { // the command is worth more than its number
			k.Failed(err)
		}
		k.restarts(r.job)
		in := k.resume(&r)
		r.began = k.clock().Now()
		st, err = k.Agent.Exec(k.Ctx, r.opts)
		in.close()
	}
}

// pause waits before the next run, and reports whether there is to be one.
func (k *Keeper) pause(r *run, d time.Duration) bool {
	k.change(r.job.Name, func(live *liveJob) { live.pausing = true })
	select {
	case <-r.halted:
	case <-k.Ctx.Done():
	case <-k.clock().After(d):
	}
	return !k.over(r)
}

// over reports whether there is to be no further run.
func (k *Keeper) over(r *run) bool {
	select {
	case <-r.halted:
		return true
	default:
		return k.Ctx.Err() != nil
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
	live := k.live[name]
	do(&live)
	k.live[name] = live
}

// halts reports whether a signal is meant to end a command for good.
func halts(s agentclient.Signal) bool { return s == agentclient.SIGKILL || s == agentclient.SIGTERM }
