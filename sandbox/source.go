package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/msb-project/msb/sandbox/internal/diskstore"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// MaxFreeze bounds how long the disk of a running sandbox is frozen for a snapshot or a clone. Its processes wait when they
// write meanwhile. If it would take longer, the snapshot fails, and the sandbox has to be stopped for it.
const MaxFreeze = 20 * time.Second

// MaxHold bounds how long a sandbox stands still for a snapshot of its memory.
const MaxHold = state.MaxHold

// source is a sandbox whose disk is copied.
type source struct {
	stored *state.Stored
	dir    string
	ca     string
	live   *Sandbox // nil for one that is stopped
}

// withStill calls do with a sandbox that runs, or that is locked so that it can't be started meanwhile.
func withStill(ctx context.Context, h *Home, name string, do func(*source) error) error {
	live, err := connectNamed(ctx, h, name)
	if errors.Is(err, ErrNotRunning) {
		return changeStopped(ctx, h, name, err, func(run *runDir, st *state.Stored) error {
			if err := clearRun(h, run.dir); err != nil { // its machine may still write to the disk
				return err
			}
			return readSource(run.dir, st, nil, do)
		})
	}
	if err != nil {
		return err
	}
	st, err := loadStored(h, name)
	if err == nil {
		err = readSource(namedPath(h, name), st, live, do)
	}
	return errors.Join(err, live.Close())
}

func readSource(dir string, st *state.Stored, live *Sandbox, do func(*source) error) error {
	ca, err := certificatesOf(filepath.Join(dir, state.CaFile))
	if err != nil {
		return err
	}
	return do(&source{stored: st, dir: dir, ca: ca, live: live})
}

func (s *source) running() bool { return s.live != nil }

// certificates are msb's certificates that the trust stores on the disk may contain.
func (s *source) certificates() string { return s.stored.ForgetCA + s.ca }

func (s *source) disk() string { return filepath.Join(s.dir, state.UpperDisk) }

// chunks stores the disk's chunks, while still has nothing written to a disk in use. If files can share blocks, that is for
// a moment. Otherwise the disk is read once before, so that most chunks only have to be compared then.
func (s *source) chunks(ctx context.Context, work *diskstore.Work, still func(context.Context, func(context.Context) error) error) (list *diskstore.List, err error) {
	if s.live == nil {
		return work.Add(ctx, s.disk())
	}
	if shares, err := work.CanStage(s.disk()); err != nil {
		return nil, err
	} else if !shares {
		if err := work.AddChanging(ctx, s.disk()); err != nil {
			return nil, err
		}
	}
	staged := ""
	err = still(ctx, func(ctx context.Context) (err error) {
		if staged, err = work.Stage(s.disk()); err == nil && staged == "" {
			list, err = work.Add(ctx, s.disk())
		}
		return err
	})
	if err == nil && staged != "" {
		list, err = work.Add(ctx, staged)
	}
	return list, err
}

// held calls do while the guest stands still, once its memory is saved in the snapshot that is made in work.
func (s *source) held(ctx context.Context, work string, do func(context.Context) error) error {
	began := time.Now()
	err := s.live.client.Save(ctx, work, MaxHold, do)
	if err != nil && ctx.Err() == nil && time.Since(began) >= MaxHold {
		err = fmt.Errorf("%w; a sandbox may stand still for %s: give it less memory, or take a snapshot of its disk alone", err, MaxHold)
	}
	return err
}

// checkMemoryRoom refuses to save a memory that could leave too little room.
func checkMemoryRoom(h *Home, name string) error {
	s, err := h.Inspect(name)
	if err != nil {
		return err
	}
	dir := filepath.Join(h.dir, state.SnapshotsDir)
	free, err := state.Free(dir)
	if err == nil && free < s.Memory+state.MinFree {
		err = fmt.Errorf("%s has %d MiB free, and the memory of %s may take %d, beside %d that stay free: %w", dir, free>>20, name, s.Memory>>20, state.MinFree>>20, syscall.ENOSPC)
	}
	return err
}

// copy copies the disk to a path that must not exist.
func (s *source) copy(ctx context.Context, to string) error {
	return s.frozen(ctx, func(ctx context.Context) error { return diskstore.CopyDisk(ctx, to, s.disk()) })
}

// frozen calls do while nothing is written to the disk. It thaws the disk before it handles an error of do, such as a full
// disk.
func (s *source) frozen(ctx context.Context, do func(context.Context) error) error {
	if s.live == nil {
		return do(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, MaxFreeze)
	defer cancel()
	frozen, err := s.live.client.Freeze(ctx, MaxFreeze)
	if err != nil {
		return err
	}
	err = do(ctx)
	if thawed := frozen.Thaw(); err == nil {
		err = thawed
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("%w; the disk of a sandbox that runs may be held for %s: stop it first", err, MaxFreeze)
	}
	return err
}
