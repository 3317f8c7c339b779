package shim

import (
	"context"
	"math"

	"github.com/containerd/cgroups/v3/cgroup2/stats"
)

// metrics are a container's figures as containerd wants those of control groups of version 2. The pod itself has none.
func (t *task) metrics(ctx context.Context) (*stats.Metrics, error) {
	if t.c == nil {
		return &stats.Metrics{}, nil
	}
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
