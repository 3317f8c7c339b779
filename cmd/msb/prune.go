package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/sandbox"
)

func newPruneCommand(ui *ui) *cobra.Command {
	var o sandbox.PruneOptions
	var flags listFlags
	c := &cobra.Command{
		Use:   "prune [flags]",
		Short: "Remove what msb run --rm=false left and unused images, and list them with their sizes",
		Example: `  msb prune --dry-run
  msb prune --stopped                      # the sandboxes that don't run, too, with their disks`,
		Args: named(cobra.NoArgs, "msb prune takes no arguments; msb rm NAME removes one sandbox"),
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := flags.check(c); err != nil { // before anything is removed
				return err
			}
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				pruned, err := home.Prune(ctx, o)
				if e := printPruned(ui, c, &flags, pruned); err == nil {
					err = e
				}
				return err
			})
		},
	}
	flags.register(c)
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "remove nothing")
	c.Flags().BoolVar(&o.Stopped, "stopped", false, "remove sandboxes with a name that don't run, too, and all that their disks hold")
	sakeOfDocker(c, "force", "f", asksNothing)
	return c
}

func printPruned(ui *ui, c *cobra.Command, flags *listFlags, pruned []sandbox.Pruned) error {
	return printList(ui, c, flags, pruned, func(p *sandbox.Pruned) string { return p.Name }, func(pruned []sandbox.Pruned) [][]string {
		rows := append(make([][]string, 0, 2+len(pruned)), []string{"KIND", "NAME", "SIZE"})
		var sum int64
		for _, p := range pruned {
			sum += p.Bytes
			rows = append(rows, []string{string(p.Kind), p.Name, progressbar.Bytes(p.Bytes)})
		}
		return append(rows, []string{"total", "", progressbar.Bytes(sum)})
	})
}
