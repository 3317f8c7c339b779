//go:build unix

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is how often a lock that another process holds is tried again: flock
// can't be waited for and cancelled at the same time.
const lockPoll = 50 * time.Millisecond

// fileLock is an exclusive flock on a file of its own. The kernel drops it when
// its process dies, so that a killed pull never blocks the next.
type fileLock struct {
	f    *os.File
	path string
}

// tryLock takes the lock or returns nil when somebody else holds it.
func tryLock(path string) (*fileLock, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open the lock %s: %w", path, err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
				return nil, nil
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// The file may have been removed between open and flock; a lock on a
		// removed file excludes nobody.
		if sameFile(f, path) {
			return &fileLock{f: f, path: path}, nil
		}
		_ = f.Close()
	}
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// waitLock takes the lock, calling waiting once if somebody holds it.
func waitLock(ctx context.Context, path string, waiting func()) (*fileLock, error) {
	var tick *time.Ticker
	for {
		l, err := tryLock(path)
		if l != nil || err != nil {
			return l, err
		}
		if tick == nil {
			waiting()
			tick = time.NewTicker(lockPoll)
			defer tick.Stop()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// release removes the file, while it is locked, and lets go.
func (l *fileLock) release() {
	_ = os.Remove(l.path)
	_ = l.f.Close()
}
