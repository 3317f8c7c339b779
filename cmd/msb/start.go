package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/sandbox"
)

const nameRemedy = "name the sandbox; `msb ls` lists those there are"

func newStartCommand(ui *ui) *cobra.Command {
	var quiet, trust, foreground bool
	var many manyFlags
	c := &cobra.Command{
		Use:   "start [flags] NAME... [-- COMMAND [ARG...]]",
		Short: "Start sandboxes that msb create or msb run --name made",
		Long: `Starts sandboxes, which run on when msb has ended. The command of msb run -d is not run
again: msb exec -d NAME -- COMMAND runs one. With --foreground msb runs for as long as the
one sandbox: it ends with 0 when that was stopped, and with another code when it ended by
itself; a signal to msb stops it. With it alone, a COMMAND after -- is run in the sandbox
at each start, in place of the one of msb run -d. msb service has units for systemd.`,
		Example: `  msb start agent
  msb start --all
  msb start --foreground web -- python -m http.server`,
	}
	many.many(c, "", isStopped, func(ctx context.Context, names []string) error {
		return startAll(ctx, ui, names, quiet, trust, nil)
	})
	detached := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		switch dash := c.ArgsLenAtDash(); {
		case foreground && (dash > 1 || dash < 0 && len(args) > 1 || dash == 0 || len(args) == 0):
			return &usageError{err: errors.New("--foreground is for one sandbox: name it, and put a command behind --"), help: "msb start --help"}
		case foreground:
			return startForeground(c.Context(), ui, args[0], quiet, trust, args[1:])
		case dash > 0 && dash < len(args):
			return &usageError{err: fmt.Errorf("a command is for --foreground; use msb exec %s -- COMMAND once it runs", args[0]), help: "msb start --help"}
		}
		return detached(c, args)
	}
	c.Flags().BoolVar(&foreground, "foreground", false, "end with the sandbox, and end the sandbox with msb")
	trustFlag(c.Flags(), &trust)
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing but names and errors")
	return c
}

// startAll starts sandboxes; with stop, each after it was stopped.
func startAll(ctx context.Context, ui *ui, names []string, quiet, trust bool, stop func(context.Context, string) error) error {
	ui.quiet = quiet
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer catchInterrupts(cancel).stop()
	return forEach(names, func(name string) error {
		if stop != nil {
			if err := stop(ctx, name); err != nil {
				return startError(ctx, err)
			}
		}
		var sb *sandbox.Sandbox
		err := approved(ctx, ui, func() (err error) {
			sb, err = sandbox.StartNamed(ctx, name, sandbox.StartOptions{
				Progress: progressbar.New(os.Stderr, progressMode(quiet)), Trust: trust,
				Notice: func(why string) { ui.note("%s", why) },
			})
			return err
		})
		if errors.Is(err, sandbox.ErrRunning) {
			ui.note("%s runs already", name)
			return ui.print(name + "\n")
		}
		if err != nil && stop != nil {
			ui.warn("%s was stopped, and is not started again", name)
		}
		if err != nil {
			return startError(ctx, err)
		}
		noteCommand(ui, sb)
		return errors.Join(started(ui, sb), sb.Close())
	})
}

// noteCommand says how to run a command again that was the one of msb run -d.
func noteCommand(ui *ui, sb *sandbox.Sandbox) {
	main, err := sb.Job(sandbox.MainJob)
	if err != nil {
		return
	}
	if st, err := main.Status(); err == nil && st.State != sandbox.JobRunning {
		ui.note("%s runs without the command of msb run -d; `msb exec -d %s -- COMMAND` runs one", sb.Name(), sb.Name())
	}
}

// forEach continues after an error, so that one wrong name doesn't stop the others.
func forEach(names []string, do func(string) error) error {
	errs := make([]error, 0, len(names))
	for _, name := range names {
		errs = append(errs, do(name))
	}
	return errors.Join(errs...)
}
