package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/image/progress"
	"github.com/msb-project/msb/sandbox"
)

const nameRemedy = "name the sandbox; `msb ls` lists those there are"

func newStartCommand(ui *ui) *cobra.Command {
	var quiet, trust bool
	c := &cobra.Command{
		Use:   "start [flags] NAME...",
		Short: "Start sandboxes that msb create or msb run --name made",
		Args:  named(cobra.MinimumNArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			ui.quiet = quiet
			ctx, cancel := context.WithCancelCause(context.WithoutCancel(c.Context()))
			defer cancel(nil)
			defer catchInterrupts(cancel).stop()
			return forEach(args, func(name string) error {
				var sb *sandbox.Sandbox
				err := approved(ctx, ui, func() (err error) {
					sb, err = sandbox.StartNamed(ctx, name, sandbox.StartOptions{
						Progress: progress.New(os.Stderr, progressMode(quiet)), Trust: trust,
						Notice: func(why string) { ui.note("%s", why) },
					})
					return err
				})
				if errors.Is(err, sandbox.ErrRunning) {
					ui.note("%s runs already", name)
					return ui.print(name + "\n")
				}
				if err != nil {
					return startError(ctx, err)
				}
				return errors.Join(started(ui, sb), sb.Close())
			})
		},
	}
	trustFlag(c.Flags(), &trust)
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing but names and errors")
	return c
}

// forEach goes on after an error, so that one name that is wrong doesn't keep the others.
func forEach(names []string, do func(string) error) error {
	errs := make([]error, 0, len(names))
	for _, name := range names {
		errs = append(errs, do(name))
	}
	return errors.Join(errs...)
}

func newStopCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "stop NAME...",
		Short: "Stop sandboxes; their disks stay",
		Args:  named(cobra.MinimumNArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			return forEach(args, func(name string) error {
				switch err := home.Stop(c.Context(), name); {
				case errors.Is(err, sandbox.ErrNotRunning):
					ui.note("%s is stopped already", name)
				case err != nil:
					return err
				}
				return ui.print(name + "\n")
			})
		},
	}
}

func newRemoveCommand(ui *ui) *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:     "rm [--force] NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove sandboxes and all that their disks hold",
		Args:    named(cobra.MinimumNArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			return forEach(args, func(name string) error {
				remove := home.Remove
				if force {
					remove = func(ctx context.Context, name string) error { return stopAndRemove(ctx, home, name) }
				}
				err := remove(c.Context(), name)
				if errors.Is(err, sandbox.ErrNoSandbox) && home.RemoveKept(name) == nil { // of msb run --rm=false
					err = nil
				}
				if err != nil {
					return err
				}
				return ui.print(name + "\n")
			})
		},
	}
	c.Flags().BoolVarP(&force, "force", "f", false, "stop those that run first")
	return c
}

// stopAndRemove removes a sandbox whatever it does: one that another command begins to start can't be stopped yet when
// it is first asked.
func stopAndRemove(ctx context.Context, home *sandbox.Home, name string) error {
	const tries = 5
	for n := 1; ; n++ {
		if err := home.Stop(ctx, name); err != nil && !errors.Is(err, sandbox.ErrNotRunning) {
			return err
		}
		if err := home.Remove(ctx, name); !errors.Is(err, sandbox.ErrRunning) || n == tries {
			return err
		}
	}
}
