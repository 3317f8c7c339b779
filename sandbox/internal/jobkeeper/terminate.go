package jobkeeper

import (
	"context"
	"sync"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// terminatePause is the time between two looks whether jobs have ended.
const terminatePause = 20 * time.Millisecond

// Terminate sends SIGTERM to all jobs that run, and waits until none does or ctx ends.
func (k *Keeper) Terminate(ctx context.Context) {
	k.mu.Lock()
	names := make([]string, 0, len(k.live))
	for name := range k.live {
		names = append(names, name)
	}
	k.mu.Unlock()
	var work sync.WaitGroup
	for _, name := range names {
		work.Go(func() { _ = k.SignalJob(ctx, agentclient.JobID{Name: name}, agentclient.SIGTERM) }) // one that has ended is what is wanted
	}
	work.Wait()
	tick := time.NewTicker(terminatePause)
	defer tick.Stop()
	for k.Running() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// SetRestart changes when the main job's command is run again, the one that runs too.
func (k *Keeper) SetRestart(r state.Restart) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Restart = r
}

func (k *Keeper) restartPolicy() state.Restart {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Restart
}
