package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// lifeFlags say when a sandbox ends by itself.
type lifeFlags struct{ maxDuration, idleTimeout time.Duration }

func (f *lifeFlags) register(fl *pflag.FlagSet) {
	fl.DurationVar(&f.maxDuration, "max-duration", 0, "stop the sandbox once it has run for this `duration`, such as 2h, whatever it does; what remains after msb stop is kept (default: never)")
	fl.DurationVar(&f.idleTimeout, "idle-timeout", 0, "stop the sandbox when it had no command, job or connection for this `duration`, such as 15m (default: never)")
}

func (f *lifeFlags) check() error {
	if f.maxDuration < 0 || f.idleTimeout < 0 {
		return errors.New("--max-duration, --idle-timeout: write a time such as 30m, or 0 for none")
	}
	return nil
}

// updateFlags is the command line of `msb update`.
type updateFlags struct {
	life             lifeFlags
	restart, memory  string
	cpus             int
	labels, unlabels []string
}

func newUpdateCommand(ui *ui) *cobra.Command {
	var f updateFlags
	c := &cobra.Command{
		Use:   "update [flags] NAME...",
		Short: "Change limits, restarts, labels and size of sandboxes",
		Long: `Changes what can change of a sandbox. --cpus and --memory hold from its next start on,
all else at once, while it runs too. docs/lifetimes.md says more.`,
		Example: `  msb update --max-duration 4h --idle-timeout 30m build
  msb update --restart no web
  msb update --memory 2G web && msb restart web`,
		Args: named(cobra.MinimumNArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			change, err := f.changes(c.Flags())
			if err != nil {
				return &usageError{err: err, help: "msb update --help"}
			}
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				return eachName(ui, args, func(name string) error {
					if err := home.Update(ctx, name, change); err != nil {
						return err
					}
					if st, err := home.Inspect(name); err == nil && st.Running && (change.CPUs != nil || change.Memory != nil) {
						ui.note("%s runs: --cpus and --memory hold from its next start on, `msb restart %s`", name, name)
					}
					return nil
				})
			})
		},
	}
	fl := c.Flags()
	f.life.register(fl)
	fl.StringVar(&f.restart, "restart", "no", "`when` to run the command of run -d again once it has ended: no, on-failure[:N] or always")
	fl.IntVar(&f.cpus, "cpus", 0, "`number` of virtual CPUs from the next start on")
	fl.StringVarP(&f.memory, "memory", "m", "", "`size` of the memory from the next start on, such as 512M or 2G")
	fl.StringArrayVarP(&f.labels, "label", "l", nil, "set a label `KEY=VALUE` (repeatable)")
	fl.StringArrayVar(&f.unlabels, "label-rm", nil, "remove the label `KEY` (repeatable)")
	fl.Lookup("max-duration").Usage = "stop the sandbox once it has run for this `duration`, whatever it does; 0 for never"
	fl.Lookup("idle-timeout").Usage = "stop the sandbox when it had no command, job or connection for this `duration`; 0 for never"
	fl.Lookup("restart").DefValue = ""
	return c
}

// changes are those of the flags that were given.
func (f *updateFlags) changes(fl *pflag.FlagSet) (c sandbox.Changes, err error) {
	if fl.NFlag() == 0 {
		return c, errors.New("nothing to change: give a flag, such as --max-duration 2h")
	}
	if err := f.life.check(); err != nil {
		return c, err
	}
	if fl.Changed("max-duration") {
		c.Lifetime = &f.life.maxDuration
	}
	if fl.Changed("idle-timeout") {
		c.IdleStop = &f.life.idleTimeout
	}
	if fl.Changed("cpus") {
		c.CPUs = &f.cpus
	}
	if fl.Changed("memory") {
		n, err := policies.ParseSize(f.memory)
		if err != nil {
			return c, fmt.Errorf("--memory: %w", err)
		}
		c.Memory = &n
	}
	if fl.Changed("restart") {
		r, err := sandbox.ParseRestart(f.restart)
		if err != nil {
			return c, fmt.Errorf("--restart: %w", err)
		}
		c.Restart = &r
	}
	c.RemoveLabels = f.unlabels
	c.Labels, err = parseLabels(f.labels)
	return c, err
}

// eachName prints each name when do has done it.
func eachName(ui *ui, names []string, do func(name string) error) error {
	return forEach(names, func(name string) error {
		if err := do(name); err != nil {
			return err
		}
		return ui.print(name + "\n")
	})
}

func newKeepCommand(ui *ui) *cobra.Command {
	var many manyFlags
	c := &cobra.Command{
		Use:   "keep [flags] NAME...",
		Short: "Start the --max-duration and --idle-timeout of sandboxes again",
		Long: `Starts the time of --max-duration and --idle-timeout again. A stop that was announced
does not come. msb update --max-duration 0 takes a limit away.`,
		Example: `  msb keep build
  msb keep --all`,
	}
	many.each(c, ui, runs, (*sandbox.Home).Keep)
	return c
}
