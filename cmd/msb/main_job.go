package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/msb-project/msb/sandbox"
)

// forMainJobs calls do for the command of each sandbox that msb run -d left running.
func forMainJobs(ctx context.Context, names []string, do func(context.Context, string, *sandbox.Job) error) error {
	home, err := sandbox.OpenHome("")
	if err != nil {
		return err
	}
	return untilSignalled(ctx, func(ctx context.Context) error {
		return forEach(names, func(name string) error {
			j, err := home.Job(name, sandbox.MainJob)
			if errors.Is(err, sandbox.ErrNoJob) {
				return fmt.Errorf("%w: %s was not made by msb run -d with a command; msb job ls %s lists its jobs, msb stop %s ends it", sandbox.ErrNoJob, name, name, name)
			}
			if err != nil {
				return err
			}
			return do(ctx, name, j)
		})
	})
}
