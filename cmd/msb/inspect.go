package main

import (
	"context"

	"github.com/msb-project/msb/sandbox"
	"github.com/spf13/cobra"
)

func newInspectCommand(ui *ui) *cobra.Command {
	var parents bool
	var format string
	c := &cobra.Command{
		Use:   "inspect [flags] NAME",
		Short: "Tell about a sandbox in JSON: state, backend, confinement, placeholders, files",
		Example: `  msb inspect agent
  msb inspect agent | jq -r .info.confinement[]
  msb inspect --format '{{.running}}' agent`,
		Args: named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				s, err := home.Inspect(args[0])
				if err == nil && parents {
					s.ParentFiles, s.MoreParentFiles, err = home.ParentFiles(ctx, args[0])
				}
				if err != nil {
					return err
				}
				return printOne(ui, c, format, s)
			})
		},
	}
	oneFormat(c, &format)
	c.Flags().BoolVar(&parents, "parent-files", false, "read the disk of a clone that runs for files that hold a parent's placeholder, and list them")
	return c
}
