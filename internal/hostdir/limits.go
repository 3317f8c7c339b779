//go:build linux

package hostdir

import (
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// limits are what one directory may take of the process.
type limits struct{ nodes, handles, locks, dirs int }

// limitsOf divides a process's descriptors among its directories. All of them together take half: the guest opens as
// many files as it may, and the process needs descriptors for the machine, its network and its callers.
func limitsOf(descriptors, share int) limits {
	each := descriptors / 2 / share
	const least = 2 // the top and one more
	return limits{
		nodes:   maxNodes / share,
		handles: min(maxHandles/share, each*3/4),
		locks:   min(maxLockFiles, each/8),
		dirs:    max(min(maxDirs, each/8), least),
	}
}

// descriptorLimit is how many descriptors the process may have (RLIMIT_NOFILE).
func descriptorLimit() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 2 * maxHandles
	}
	return int(min(l.Cur, math.MaxInt32))
}

// Pool holds the limits of directories that come and go while a machine runs. One directory may use whatever the
// others don't.
type Pool struct {
	most           limits
	nodes, handles atomic.Int64
}

// poolShare is the number of directories by which a pool's open directories and locks are divided: unlike nodes and
// handles, these are not counted together.
const poolShare = 64

// NewPool makes the pool of a machine.
func NewPool() *Pool {
	descriptors := descriptorLimit()
	most := limitsOf(descriptors, poolShare)
	whole := limitsOf(descriptors, 1)
	most.nodes, most.handles = whole.nodes, min(4*maxHandles, descriptors/2*3/4)
	return &Pool{most: most}
}

// take counts one more of at most most; a nil pool has no bound of its own.
func (p *Pool) take(of func(*Pool) *atomic.Int64, most int) bool {
	if p == nil || of(p).Add(1) <= int64(most) {
		return true
	}
	of(p).Add(-1)
	return false
}

// give takes back n.
func (p *Pool) give(of func(*Pool) *atomic.Int64, n int) {
	if p != nil {
		of(p).Add(-int64(n))
	}
}

func poolNodes(p *Pool) *atomic.Int64   { return &p.nodes }
func poolHandles(p *Pool) *atomic.Int64 { return &p.handles }
