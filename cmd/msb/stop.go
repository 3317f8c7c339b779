package main

import (
	"context"
	"errors"

	"github.com/msb-project/msb/sandbox"
	"github.com/spf13/cobra"
)

func newStopCommand(ui *ui) *cobra.Command {
	var many manyFlags
	c := &cobra.Command{
		Use:   "stop [flags] NAME...",
		Short: "Stop sandboxes; their disks stay",
		Example: `  msb stop agent
  msb stop --all`,
	}
	many.many(c, "a", runs, func(ctx context.Context, names []string) error {
		home, err := sandbox.OpenHome("")
		if err != nil {
			return err
		}
		return forEach(names, func(name string) error {
			switch err := home.Stop(ctx, name); {
			case errors.Is(err, sandbox.ErrNotRunning):
				ui.note("%s is stopped already", name)
			case err != nil:
				return err
			}
			return ui.print(name + "\n")
		})
	})
	return c
}
