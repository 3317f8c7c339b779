package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
)

func newExecCommand(ui *ui) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "exec [flags] NAME [--] COMMAND [ARG...]",
		Short: "Run a command in a sandbox that runs",
		Long: `Runs a command in a sandbox that msb start started. Its exit code is the command's.
With -d the command runs on as a job when msb ends: msb prints the job's name and
ends once the program runs. The job's output is kept: msb job logs NAME JOB.

` + exitHelp,
		Example: `  msb exec agent -- uname -a
  msb exec -it agent sh
  tar c . | msb exec -i agent -- tar x -C /root
  msb exec -d --job beat agent -- sh -c 'while sleep 1; do date; done'
  msb job logs -f agent beat`,
		Args: named(cobra.MinimumNArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			ui.quiet, f.plain = f.quiet, true
			argv := args[1:]
			if len(argv) > 0 && strings.HasPrefix(argv[0], "-") && argv[0] != "--" {
				return &usageError{err: fmt.Errorf("%s stands behind the name: flags go before it, as in msb exec -it %s sh", argv[0], args[0]), help: "msb exec --help"}
			}
			if len(argv) > 0 && argv[0] == "--" { // flags end at NAME, so that one behind it comes as an argument
				argv = argv[1:]
			}
			if err := f.checkExec(); err != nil || len(argv) == 0 {
				if err == nil {
					err = errNoCommand
				}
				return &usageError{err: err, help: "msb exec --help"}
			}
			if err := f.checkJob(c.Flags().Changed("job")); err != nil {
				return err
			}
			return execNamed(c.Context(), ui, &f, args[0], argv)
		},
	}
	c.Flags().SetInterspersed(false) // what follows NAME is the command's own
	f.registerExec(c.Flags())
	c.Flags().BoolVarP(&f.detach, "detach", "d", false, "run the command as a job, and print the job's name")
	c.Flags().StringVar(&f.job, "job", "", "with -d: give the job this `name` (default: job-1, job-2 …)")
	return c
}

// checkJob refuses flags that have no meaning for a job, and those that have one only for a job.
func (f *runFlags) checkJob(named bool) error {
	var err error
	switch {
	case named && !f.detach:
		err = errors.New("--job names what runs detached: give -d too, or leave it out")
	case named:
		return sandbox.Fail(sandbox.CheckJobName(f.job))
	}
	if err != nil {
		return &usageError{err: err, help: "msb exec --help"}
	}
	return nil
}

// startJob starts what runs detached, and returns its name.
func startJob(ctx context.Context, ui *ui, sb *sandbox.Sandbox, name string, o sandbox.ExecOptions) (string, error) {
	o.JobInput, o.Stdin, o.Stdout, o.Stderr = o.Stdin != nil, nil, nil, nil
	if o.TTY {
		o.Size = unknownSize
	}
	j, err := sb.StartJob(ctx, name, o)
	var not *sandbox.NotStartedError
	if errors.As(err, &not) {
		ui.warn("%s", not.Status.Message)
		return "", exitCode(not.Status.Code)
	}
	if err != nil {
		return "", startError(ctx, err)
	}
	return j.Name(), nil
}

// noteDetached tells whoever typed the detach keys what runs on.
func noteDetached(ui *ui, name string) {
	ui.note("detached; the command runs on in %s, and what it prints is lost: `msb stop %s` ends it", name, name)
}

func execNamed(ctx context.Context, ui *ui, f *runFlags, name string, argv []string) error {
	home, err := sandbox.OpenHome("")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	sig := catchInterrupts(cancel)
	defer sig.stop()
	sb, err := home.Connect(ctx, name)
	if err != nil {
		return startError(ctx, err)
	}
	defer func() { _ = sb.Close() }() // ends this session, whose work is done
	f.noteUnset(ui)
	if f.detach {
		job, err := startJob(ctx, ui, sb, f.job, execOptions(sb.Image().Config, f, argv))
		if err != nil {
			return err
		}
		return ui.print(job + "\n")
	}
	code, err := watchDenials(ui, home, name, func() (int, error) { return execIn(ctx, ui, sb, f, argv, sig) })
	if errors.Is(err, errDetached) {
		noteDetached(ui, name)
		return nil
	}
	if err != nil {
		return err
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}
