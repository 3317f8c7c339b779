package main

import (
	"context"
	"strconv"

	"github.com/msb-project/msb/sandbox"
	"github.com/spf13/cobra"
)

func newWaitCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "wait NAME...",
		Short: "Wait until the commands of msb run -d have ended, and print their exit codes",
		Example: `  msb run -d --name build -- make
  msb wait build                           # prints 0 once make has ended well
  msb job wait build tests                 # of a job that msb exec -d started`,
		Args: named(cobra.MinimumNArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return forMainJobs(c.Context(), args, func(ctx context.Context, _ string, j *sandbox.Job) error {
				st, err := j.Wait(ctx)
				if err != nil {
					return err
				}
				return ui.print(strconv.Itoa(st.Code) + "\n")
			})
		},
	}
}
