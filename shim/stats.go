package shim

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
)

// containerd asks for the figures of all containers of the node, one after the other and without a limit of its own: a guest that
// doesn't answer would keep them, and with them the kubelet's evictions, from all pods. So it is waited for no longer than statsWait,
// and for statsPause not at all then; the figures are those that it gave last.
const (
	statsWait  = 2 * time.Second
	statsPause = time.Minute
)

// podStats says whether a guest answers in time.
type podStats struct {
	mu   sync.Mutex
	slow time.Time // when it last didn't
}

func (p *podStats) wait() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.slow.IsZero() && now().Sub(p.slow) < statsPause {
		return 0
	}
	return statsWait
}

func (p *podStats) late() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = now()
}

// taskStats are a container's figures.
type taskStats struct {
	mu    sync.Mutex
	asked chan struct{} // closed when the guest has answered; nil if it isn't asked
	last  *stats.Metrics
	err   error
}

// metrics are a container's figures as containerd wants those of control groups of version 2. The pod itself has none.
func (t *task) metrics(ctx context.Context, p *pod) (*stats.Metrics, error) {
	if t.c == nil {
		return &stats.Metrics{}, nil
	}
	f := &t.stats
	f.mu.Lock()
	if f.asked == nil {
		f.asked = make(chan struct{})
		go t.ask(context.WithoutCancel(ctx), f.asked) // which the end of the machine ends
	}
	answered := f.asked
	f.mu.Unlock()
	wait := p.stats.wait()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-answered:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		if wait > 0 {
			p.stats.late()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil && f.err == nil {
		return nil, withKind("the guest has not told the container's figures yet", errdefs.ErrUnavailable)
	}
	return f.last, f.err
}

// ask asks the guest.
func (t *task) ask(ctx context.Context, answered chan struct{}) {
	m, err := t.figures(ctx)
	f := &t.stats
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.last, f.err = nil, m, err
	close(answered)
}

func (t *task) figures(ctx context.Context) (*stats.Metrics, error) {
	s, err := t.c.Stats(ctx)
	if err != nil {
		return nil, err
	}
	mem, cpu := s.Memory, s.CPU
	limit := func(n uint64) uint64 {
		if n == math.MaxUint64 {
			return 0 // containerd's word for none
		}
		return n
	}
	return &stats.Metrics{
		Pids: &stats.PidsStat{Current: s.PIDsCurrent, Limit: limit(s.PIDsLimit)},
		CPU: &stats.CPUStat{
			UsageUsec: cpu["usage_usec"], UserUsec: cpu["user_usec"], SystemUsec: cpu["system_usec"],
			NrPeriods: cpu["nr_periods"], NrThrottled: cpu["nr_throttled"], ThrottledUsec: cpu["throttled_usec"],
		},
		Memory: &stats.MemoryStat{
			Anon: mem["anon"], File: mem["file"], KernelStack: mem["kernel_stack"], Slab: mem["slab"], Sock: mem["sock"], Shmem: mem["shmem"],
			FileMapped: mem["file_mapped"], FileDirty: mem["file_dirty"], FileWriteback: mem["file_writeback"],
			InactiveAnon: mem["inactive_anon"], ActiveAnon: mem["active_anon"], InactiveFile: mem["inactive_file"], ActiveFile: mem["active_file"],
			Unevictable: mem["unevictable"], SlabReclaimable: mem["slab_reclaimable"], SlabUnreclaimable: mem["slab_unreclaimable"],
			Pgfault: mem["pgfault"], Pgmajfault: mem["pgmajfault"],
			Usage: s.MemoryCurrent, MaxUsage: s.MemoryPeak, UsageLimit: s.MemoryLimit,
		},
		MemoryEvents: &stats.MemoryEvents{
			Low: s.MemoryEvents["low"], High: s.MemoryEvents["high"], Max: s.MemoryEvents["max"], Oom: s.MemoryEvents["oom"], OomKill: s.MemoryEvents["oom_kill"],
		},
	}, nil
}
