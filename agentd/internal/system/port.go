//go:build linux

package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// portPoll is how often we look for the port, and then for the host at its
// other end.
const portPoll = 5 * time.Millisecond

// OpenPort opens the virtio-console port of that name and waits until the host
// holds its other end: before that a read looks like the end of the stream.
func OpenPort(ctx context.Context, name string) (*os.File, error) {
	tick := time.NewTicker(portPoll)
	defer tick.Stop()
	for {
		if dev := findPort("/sys/class/virtio-ports", name); dev != "" {
			f, err := os.OpenFile("/dev/"+dev, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
			if err != nil {
				return nil, fmt.Errorf("open the port %q: %w", name, err)
			}
			return f, awaitHost(ctx, f, tick)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no virtio-console port is called %q: %w", name, ctx.Err())
		case <-tick.C:
		}
	}
}

func findPort(class, name string) string {
	files, _ := filepath.Glob(filepath.Join(class, "*", "name")) // a constant pattern
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && strings.TrimSpace(string(b)) == name {
			return filepath.Base(filepath.Dir(f))
		}
	}
	return ""
}

func awaitHost(ctx context.Context, f *os.File, tick *time.Ticker) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("poll the port: %w", err)
	}
	for {
		fds := []unix.PollFd{{Events: unix.POLLIN}}
		var pollErr error
		if err := raw.Control(func(fd uintptr) {
			fds[0].Fd = int32(fd)
			_, pollErr = unix.Poll(fds, 0)
		}); err != nil {
			return fmt.Errorf("poll the port: %w", err)
		}
		if pollErr != nil && !errors.Is(pollErr, unix.EINTR) {
			return fmt.Errorf("poll the port: %w", pollErr)
		}
		if fds[0].Revents&unix.POLLHUP == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the host did not open the port: %w", ctx.Err())
		case <-tick.C:
		}
	}
}
