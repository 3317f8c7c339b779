package main

import (
	"context"
	"errors"

	"github.com/msb-project/msb/sandbox"
	"github.com/spf13/cobra"
)

func newRestartCommand(ui *ui) *cobra.Command {
	var quiet, trust bool
	var many manyFlags
	c := &cobra.Command{
		Use:   "restart [flags] NAME...",
		Short: "Stop sandboxes and start them again; their disks stay",
		Example: `  msb restart web
  msb restart --filter label=team=web`,
	}
	many.many(c, "a", runs, func(ctx context.Context, names []string) error {
		home, err := sandbox.OpenHome("")
		if err != nil {
			return err
		}
		return startAll(ctx, ui, names, quiet, trust, func(ctx context.Context, name string) error {
			if _, err := home.Policy(name); err != nil {
				return err // it could not be started again
			}
			if err := home.Stop(ctx, name); err != nil && !errors.Is(err, sandbox.ErrNotRunning) {
				return err
			}
			return nil
		})
	})
	trustFlag(c.Flags(), &trust)
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing but names and errors")
	return c
}
