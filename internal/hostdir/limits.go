//go:build linux

package hostdir

import (
	"math"

	"golang.org/x/sys/unix"
)

// limits are what one directory may take of the process.
type limits struct{ nodes, handles, locks, dirs int }

// limitsOf divides what a process with so many descriptors has among its directories. All of them together take half: the
// guest opens as many files as it may, and the process needs descriptors for the machine, its network and its callers.
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
