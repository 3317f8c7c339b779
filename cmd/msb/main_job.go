package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
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

func newShellCommand(ui *ui) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "shell [flags] NAME",
		Short: "Open a shell in a sandbox that runs: bash if it is there, else sh",
		Example: `  msb shell agent
  msb shell -u nobody -w /tmp agent
  echo 'uname -a' | msb shell agent`,
		Args: named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			keys, err := parseDetachKeys(f.detachKeys)
			if err != nil {
				return &usageError{err: err, help: "msb shell --help"}
			}
			f.keys, f.plain, f.stdin, f.tty = keys, true, true, isTerminal(os.Stdin) && isTerminal(os.Stdout)
			return execNamed(c.Context(), ui, &f, args[0], []string{"sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"})
		},
	}
	f.registerWho(c.Flags())
	c.Flags().StringVar(&f.detachKeys, "detach-keys", "", detachKeysHelp)
	return c
}

func newRestartCommand(ui *ui) *cobra.Command {
	var quiet, trust bool
	var many manyFlags
	c := &cobra.Command{
		Use:   "restart [flags] NAME...",
		Short: "Stop sandboxes and start them again; their disks stay",
		Example: `  msb restart web
  msb restart --filter label=team=web`,
	}
	many.many(c, "a", runs, func(ctx context.Context, names []string) error {
		home, err := sandbox.OpenHome("")
		if err != nil {
			return err
		}
		return startAll(ctx, ui, names, quiet, trust, func(ctx context.Context, name string) error {
			if _, err := home.Policy(name); err != nil {
				return err // it could not be started again
			}
			if err := home.Stop(ctx, name); err != nil && !errors.Is(err, sandbox.ErrNotRunning) {
				return err
			}
			return nil
		})
	})
	trustFlag(c.Flags(), &trust)
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing but names and errors")
	return c
}
