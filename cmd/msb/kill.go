package main

import (
	"context"

	"github.com/msb-project/msb/sandbox"
	"github.com/spf13/cobra"
)

func newKillCommand(ui *ui) *cobra.Command {
	var signal string
	var many manyFlags
	c := &cobra.Command{
		Use:   "kill [flags] NAME...",
		Short: "Send the commands of msb run -d a signal; the sandboxes run on",
		Example: `  msb kill -s HUP web
  msb job kill web beat                    # of a job that msb exec -d started
  msb stop web                             # ends the sandbox`,
	}
	many.many(c, "a", runs, func(ctx context.Context, names []string) error {
		sig, err := parseSignal(signal)
		if err != nil {
			return &usageError{err: err, help: "msb kill --help"}
		}
		return forMainJobs(ctx, names, func(ctx context.Context, name string, j *sandbox.Job) error {
			if err := j.Kill(ctx, sig); err != nil {
				return err
			}
			return ui.print(name + "\n")
		})
	})
	c.Flags().StringVarP(&signal, "signal", "s", "KILL", "the `signal`, by name or number")
	return c
}
