//go:build !vmtest

package sandbox

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestI12_WaitsEndOnReadOnlyDisks: the end of a job can't be recorded there, so that it would seem to run for ever. On a
// disk that can be written, the same calls wait for the job.
func TestI12_WaitsEndOnReadOnlyDisks(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	end := make(chan struct{})
	k.Agent = execFunc(func(_ context.Context, o ExecOptions) (ExitStatus, error) {
		o.OnStart()
		<-end
		return ExitStatus{}, nil
	})
	defer close(end)
	j := k.run(t, "a", "x")
	waits := func(ctx context.Context) (wait, follow error) {
		_, wait = j.Wait(ctx)
		l, err := j.Logs(ctx, LogOptions{Follow: true})
		if err != nil {
			return wait, err
		}
		_, follow = l.Next()
		return wait, errors.Join(follow, l.Close())
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if wait, follow := waits(over); !errors.Is(wait, context.Canceled) || !errors.Is(follow, context.Canceled) {
		t.Errorf("on a disk that can be written: %v, %v", wait, follow)
	}
	type result struct{ mount, wait, follow error }
	ended := make(chan result)
	go func() {
		runtime.LockOSThread() // and ends with its mounts
		var r result
		if r.mount = readOnlyHere(k.Dir); r.mount == nil {
			r.wait, r.follow = waits(t.Context())
		}
		ended <- r
	}()
	r := <-ended
	if errors.Is(r.mount, unix.EPERM) {
		t.Skip("only root mounts")
	}
	must(t, r.mount)
	if !errors.Is(r.wait, ErrJobFiles) || !errors.Is(r.follow, ErrJobFiles) {
		t.Errorf("on a read-only disk: %v, %v; want ErrJobFiles", r.wait, r.follow)
	}
}

// readOnlyHere makes a directory read-only for the calling thread.
func readOnlyHere(dir string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}
