package main

import (
	"context"
	"errors"

	"github.com/msb-project/msb/sandbox"
	"github.com/spf13/cobra"
)

func newRemoveCommand(ui *ui) *cobra.Command {
	var force bool
	var many manyFlags
	c := &cobra.Command{
		Use:     "rm [flags] NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove sandboxes and all that their disks hold",
		Example: `  msb rm agent
  msb rm --force --filter label=team=web`,
	}
	many.many(c, "a", anyState, func(ctx context.Context, names []string) error {
		home, err := sandbox.OpenHome("")
		if err != nil {
			return err
		}
		return forEach(names, func(name string) error {
			remove := home.Remove
			if force {
				remove = func(ctx context.Context, name string) error { return stopAndRemove(ctx, home, name) }
			}
			err := remove(ctx, name)
			if errors.Is(err, sandbox.ErrNoSandbox) { // of msb run --rm=false
				if kept := home.KeptRuns().Remove(name); !errors.Is(kept, sandbox.ErrNoSandbox) {
					err = kept
				}
			}
			if force && errors.Is(err, sandbox.ErrNoSandbox) { // what is asked for is so already
				ui.warn("%v", err)
				return nil
			}
			if err != nil {
				return err
			}
			return ui.print(name + "\n")
		})
	})
	c.Flags().BoolVarP(&force, "force", "f", false, "stop those that run first; a name that no sandbox has is no error then")
	return c
}

// stopper stops and removes sandboxes; *sandbox.Home is one.
type stopper interface {
	Stop(ctx context.Context, name string) error
	Remove(ctx context.Context, name string) error
}

// stopAndRemove stops and removes a sandbox. It tries again, since a sandbox that another command has just begun to start
// can't be stopped yet. One of `msb run -d --rm` removes itself when it was stopped.
func stopAndRemove(ctx context.Context, home stopper, name string) error {
	const tries = 5
	for n := 1; ; n++ {
		stopped := home.Stop(ctx, name)
		if stopped != nil && !errors.Is(stopped, sandbox.ErrNotRunning) {
			return stopped
		}
		err := home.Remove(ctx, name)
		if stopped == nil && errors.Is(err, sandbox.ErrNoSandbox) {
			return nil
		}
		if !errors.Is(err, sandbox.ErrRunning) || n == tries {
			return err
		}
	}
}
