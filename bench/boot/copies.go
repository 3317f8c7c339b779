//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/msb-project/msb/sandbox"
)

const (
	// settle is a little longer than it takes until a file that was just written is known by its times.
	settle = 4 * time.Second
	// idleCopies is how many of them an emulated host has room for.
	idleCopies = 10
)

// copies is msb with QEMU on KVM, whose guests are copies of one saved machine.
type copies struct{ ours }

// runOnce measures one `msb run`.
func (c *copies) runOnce(ctx context.Context, f values) error {
	if err := c.fill(ctx); err != nil {
		return err
	}
	return c.run(ctx, f, "--cold=false", seriesCopyFirst, seriesCopyRun)
}

// fill saves a machine, unless there is one, and has it read once.
func (c *copies) fill(ctx context.Context) error {
	if c.saved() {
		return nil
	}
	if err := c.runWarm(ctx, values{}); err != nil {
		return err
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := c.runWarm(ctx, values{}); err != nil {
		return err
	}
	if !c.saved() {
		return errors.New("no machine was saved")
	}
	return nil
}

func (c *copies) saved() bool {
	found, err := filepath.Glob(filepath.Join(c.home, "kernel", "warm-*[0-9a-f]"))
	return err == nil && len(found) > 0
}

// idle measures the memory of some copies beside each other, each idle after one command.
func (c *copies) idle(ctx context.Context, f values) (err error) {
	if err := c.fill(ctx); err != nil {
		return err
	}
	var open []*sandbox.Sandbox
	defer func() {
		for _, sb := range open {
			err = errors.Join(err, sb.Close())
		}
	}()
	for len(open) < idleCopies {
		sb, _, err := c.interactive(ctx, false)
		if err != nil {
			return fmt.Errorf("copy %d: %w", len(open)+1, err)
		}
		if open = append(open, sb); !sb.Info().Restored {
			return fmt.Errorf("copy %d was booted", len(open))
		}
	}
	sizes, err := sandboxMemory()
	for _, size := range sizes {
		f.add(seriesCopyMemory, mib(size))
	}
	return err
}
