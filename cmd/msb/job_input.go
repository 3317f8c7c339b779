package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
)

func newJobInputCommand(*ui) *cobra.Command {
	var eof bool
	c := &cobra.Command{
		Use:   "input [--eof] NAME JOB",
		Short: "Copy standard input to a job that msb exec -d -i started",
		Long: `Copies standard input to that of a job, and returns once the job has taken it. The
job's standard input stays open for more, unless --eof ends it.`,
		Example: `  msb exec -d -i --job shell agent -- sh
  echo 'uname -a' | msb job input agent shell
  msb job input --eof agent shell </dev/null  # the shell ends
  msb job logs agent shell`,
		Args: named(cobra.ExactArgs(2), jobRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return forJobs(c.Context(), args, func(ctx context.Context, j *sandbox.Job) error {
				return startError(ctx, feedJob(ctx, j, untilDone(ctx, os.Stdin), eof))
			})
		},
	}
	c.Flags().BoolVar(&eof, "eof", false, "end the job's standard input behind it")
	return c
}

// jobWriter is a job, but in tests.
type jobWriter interface {
	Write(ctx context.Context, p []byte, eof bool) (int, error)
}

var _ jobWriter = (*sandbox.Job)(nil)

// feedJob copies r to a job, as slowly as that reads.
func feedJob(ctx context.Context, j jobWriter, r io.Reader, eof bool) error {
	const part = 64 << 10 // bytes
	buf := make([]byte, part)
	for {
		n, err := r.Read(buf)
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return err
		}
		if n > 0 || last && eof {
			if err := writeAll(ctx, j, buf[:n], last && eof); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

func writeAll(ctx context.Context, j jobWriter, p []byte, eof bool) error {
	for {
		n, err := j.Write(ctx, p, eof)
		if p = p[n:]; !errors.Is(err, sandbox.ErrBusy) {
			return err
		}
	}
}
