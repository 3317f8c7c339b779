//go:build linux

package workload

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Rlimit is a resource limit by its name in container tools.
type Rlimit struct {
	Name       string
	Soft, Hard uint64
}

// rlimitNumber knows the names of getrlimit(2) without their prefix.
func rlimitNumber(name string) (int, bool) {
	n, ok := map[string]int{
		"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU,
		"data": unix.RLIMIT_DATA, "fsize": unix.RLIMIT_FSIZE, "locks": unix.RLIMIT_LOCKS,
		"memlock": unix.RLIMIT_MEMLOCK, "msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE,
		"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS,
		"rtprio": unix.RLIMIT_RTPRIO, "rttime": unix.RLIMIT_RTTIME, "sigpending": unix.RLIMIT_SIGPENDING,
		"stack": unix.RLIMIT_STACK,
	}[strings.TrimPrefix(strings.ToLower(name), "rlimit_")]
	return n, ok
}

func checkRlimits(limits []Rlimit) error {
	for _, l := range limits {
		if _, ok := rlimitNumber(l.Name); !ok {
			return fmt.Errorf("no resource limit is called %q", l.Name)
		}
		if l.Soft > l.Hard {
			return fmt.Errorf("resource limit %s: soft %d is above hard %d", l.Name, l.Soft, l.Hard)
		}
	}
	return nil
}

// limitAndRelease sets the limits of a process that stands at its first
// instruction because it was started traced, and lets it go. Setting them on
// ourselves before the fork would limit PID 1; after it, the process could
// have run without them.
func limitAndRelease(pid int, limits []Rlimit) error {
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil {
		return fmt.Errorf("wait for the process to stop: %w", err)
	}
	for _, l := range limits {
		n, _ := rlimitNumber(l.Name)
		if err := unix.Prlimit(pid, n, &unix.Rlimit{Cur: l.Soft, Max: l.Hard}, nil); err != nil {
			return fmt.Errorf("set resource limit %s: %w", l.Name, err)
		}
	}
	return syscall.PtraceDetach(pid)
}
