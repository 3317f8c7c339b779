package main

import (
	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
)

func newPauseCommand(ui *ui) *cobra.Command {
	var many manyFlags
	c := &cobra.Command{
		Use:   "pause [flags] NAME...",
		Short: "Stop sandboxes where they are; memory and processes stay",
		Long: `Stops the machines of sandboxes that run where they are, until msb resume: their processes
get no time, their memory stays. Connections stay open as long as the other side waits.
Meanwhile exec, cp and their like are errors; msb stop works. The time of --max-duration
and --idle-timeout stands still.`,
		Example: `  msb pause build
  msb resume build
  msb pause --filter label=team=web`,
	}
	many.each(c, ui, runs, (*sandbox.Home).Pause)
	return c
}

func newResumeCommand(ui *ui) *cobra.Command {
	var many manyFlags
	c := &cobra.Command{
		Use:     "resume [flags] NAME...",
		Aliases: []string{"unpause"},
		Short:   "Let paused sandboxes go on (also: unpause)",
		Example: `  msb resume build
  msb resume --all`,
	}
	many.each(c, ui, isPaused, (*sandbox.Home).Resume)
	return c
}
