package main

import (
	"context"

	"github.com/msb-project/msb/sandbox"
	"github.com/spf13/cobra"
)

func newRenameCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:     "rename NAME NEW",
		Short:   "Give a sandbox that is stopped another name",
		Example: `  msb stop web && msb rename web shop`,
		Args:    named(cobra.ExactArgs(2), "name the sandbox, and what it is to be called; `msb ls` lists those there are"),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				if err := home.Rename(ctx, args[0], args[1]); err != nil {
					return err
				}
				return ui.print(args[1] + "\n")
			})
		},
	}
}
