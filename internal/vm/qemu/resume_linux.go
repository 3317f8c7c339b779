package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/msb-project/msb/internal/vm"
)

// maxClockOff is how far off the clock of a saved machine may be, in parts per million: two measurements differ by more
// than they should while the host's clock is adjusted, and the supervisor keeps the guest's clock right.
const maxClockOff = 2000

// resumeWait bounds the loading of a saved machine.
const resumeWait = 2 * time.Minute

// resume starts the machine that was saved, and lets it go on.
func (b *Backend) resume(ctx context.Context, spec *vm.Spec) (vm.Machine, error) {
	needs, err := b.needs(ctx, spec)
	if err == nil {
		err = b.checkSaved(&spec.Resume.Saved, needs)
	}
	if err != nil {
		return nil, errors.Join(err, closeNet(spec), closeAll(spec.Held))
	}
	ctx, cancel := context.WithTimeout(ctx, resumeWait)
	defer cancel()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, closeNet(spec), closeAll(spec.Held))
	}
	widenPipe(w)
	mon, m, err := b.startMonitored(ctx, spec, nil, r)
	err = errors.Join(err, r.Close())
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	err = b.loadSaved(ctx, spec, mon, w)
	if err == nil {
		err = spec.Resume.Begin()
	}
	if err == nil {
		err = mon.do(ctx, "cont", nil)
	}
	if err != nil {
		err = ownWords(ctx, m, mon, err)
		mon.close()
		return nil, errors.Join(err, m.Kill())
	}
	return b.saver(ctx, m, spec, mon, true)
}

func (b *Backend) checkSaved(saved *vm.Saved, needs []vm.Need) error {
	if saved.Backend != b.Name() {
		return fmt.Errorf("%w: it was saved by %s, and this is %s", vm.ErrNotResumed, saved.Backend, b.Name())
	}
	if err := vm.CheckNeeds(saved.Needs, needs); err != nil {
		return err
	}
	if clock := b.tsc.frequency(); saved.ClockKHz != 0 && clock != 0 && !within(saved.ClockKHz, clock, maxClockOff) {
		return fmt.Errorf("%w: the clock of its processor ran at %d kHz, and runs at %d here", vm.ErrNotResumed, saved.ClockKHz, clock)
	}
	return nil
}

// loadSaved feeds QEMU the state. A state that is damaged never comes to its end, so that nothing of it runs.
func (b *Backend) loadSaved(ctx context.Context, spec *vm.Spec, mon *monitor, w *os.File) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fed := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(onlyWriter{w}, onlyReader{spec.Resume.State}, make([]byte, copyBytes))
		if err == nil {
			err = w.Close() // or QEMU waits for the rest of one that was cut
		} else {
			cancel(err)
		}
		fed <- err
	}()
	err := mon.begin(ctx, false)
	if err == nil {
		err = mon.do(ctx, "migrate-incoming", arguments{"uri": fmt.Sprintf("fd:%d", numbers(spec, saving{monitor: w, state: w}).state)})
	}
	if err == nil {
		err = mon.await(ctx, "MIGRATION", "completed")
	}
	if err != nil {
		_ = w.SetWriteDeadline(time.Unix(1, 0))
		if wrong := <-fed; wrong != nil && !errors.Is(wrong, os.ErrDeadlineExceeded) {
			err = wrong
		}
		_ = w.Close() // it may be closed
		return fmt.Errorf("%w: %w", vm.ErrNotResumed, err)
	}
	if err = <-fed; err != nil {
		_ = w.Close() // of no use any more
	}
	return err
}

// ownWords adds why QEMU ended, if it did.
func ownWords(ctx context.Context, m vm.Machine, mon *monitor, err error) error {
	select {
	case <-mon.gone:
	default:
		return err
	}
	const reaped = time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reaped)
	defer cancel()
	if ended := m.Wait(ctx); ended != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", err, ended)
	}
	return err
}

func closeAll(files []*os.File) error {
	var err error
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}
