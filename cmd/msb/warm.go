package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
)

func newWarmCommand(ui *ui) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "warm [flags] [IMAGE]",
		Short: "Prepare what later runs start from: image, kernel and saved machine",
		Long: `Starts a sandbox and ends it again, so that everything is in the cache that later ones with the
same memory, CPUs and disk start from: the image, the guest's kernel and, where QEMU runs the
guest, a machine that has booted (docs/warm-starts.md). The first run does the same by itself.`,
		Example: `  msb warm
  msb warm -m 2G python:3.12`,
		Args: named(cobra.MaximumNArgs(1), "give one image at most"),
		RunE: func(c *cobra.Command, args []string) error {
			ui.quiet, f.cpusSet, f.remove = f.quiet, c.Flags().Changed("cpus"), true
			cfg, _, err := f.config(ui, args, len(args))
			if err != nil {
				return err
			}
			return untilStarted(c.Context(), ui, func(ctx context.Context) error {
				var sb *sandbox.Sandbox
				err := approved(ctx, ui, func() (err error) {
					sb, err = sandbox.Start(ctx, cfg)
					return err
				})
				if err != nil {
					return err
				}
				if sb.Info().Restored {
					ui.note("a saved machine is ready")
				}
				return sb.Close()
			})
		},
	}
	f.registerMachine(c.Flags())
	c.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print nothing but errors")
	return c
}
