package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
)

func newPauseCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "pause NAME...",
		Short: "Stop sandboxes where they are; memory and processes stay",
		Long: `Stops the machines of sandboxes that run where they are, until msb resume: their processes
get no time, their memory stays. Connections stay open as long as the other side waits.
Meanwhile exec, cp and their like are errors; msb stop works. The time of --max-duration
and --idle-timeout stands still.`,
		Example: `  msb pause build
  msb resume build`,
		Args: named(cobra.MinimumNArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				return eachName(ui, args, func(name string) error { return home.Pause(ctx, name) })
			})
		},
	}
}

func newResumeCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:     "resume NAME...",
		Aliases: []string{"unpause"},
		Short:   "Let paused sandboxes go on (also: unpause)",
		Example: `  msb resume build`,
		Args:    named(cobra.MinimumNArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				return eachName(ui, args, func(name string) error { return home.Resume(ctx, name) })
			})
		},
	}
}
