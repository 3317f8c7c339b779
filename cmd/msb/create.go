package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox"
)

func newCreateCommand(ui *ui) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "create [flags] NAME [IMAGE]",
		Short: "Make a sandbox with a name, which stays until it is removed",
		Long: `Makes a sandbox that stays: its disk, its placeholders, its certificate authority
and the variables of -e are there at each start. A policy file is read again at each start, and
a change takes effect at once while it runs. msb start starts it.`,
		Example: `  msb create --policy policy.toml agent python:3.12
  msb start agent
  msb exec agent -- pip install requests
  msb stop agent`,
		Args: named(cobra.MinimumNArgs(1), "name the sandbox, and the image if it isn't the policy's"),
		RunE: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() >= 0 || len(args) > 2 {
				return &usageError{err: fmt.Errorf("msb create takes no command: run one with msb exec %s -- COMMAND once it is started, or with msb run -d --name %s", args[0], args[0]), help: "msb create --help"}
			}
			ui.quiet, f.cpusSet, f.name, f.remove = f.quiet, c.Flags().Changed("cpus"), args[0], true
			f.noteUnset(ui)
			cfg, _, err := f.config(ui, args[1:], -1)
			if err != nil {
				return err
			}
			err = untilStarted(c.Context(), ui, func(ctx context.Context) error {
				return approved(ctx, ui, func() error { return sandbox.Create(ctx, cfg) })
			})
			if err != nil {
				return err
			}
			return ui.print(args[0] + "\n")
		},
	}
	f.registerMachine(c.Flags())
	c.Flags().StringArrayVarP(&f.env, "env", "e", nil, "set `NAME=VALUE` for every command, or pass NAME on (repeatable)")
	c.Flags().Var(envFiles{&f.envOfFiles}, "env-file", "set the variables of a `file` for every command, NAME=VALUE on each line; -e wins over it (repeatable)")
	c.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print nothing but the name and errors")
	f.pull = string(image.PullMissing)
	return c
}

// named turns an error about the number of arguments into a sentence that says what is missing, or
// which is too much.
func named(check cobra.PositionalArgs, remedy string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if check(c, args) == nil {
			return nil
		}
		text := remedy
		for most := len(args) - 1; most > 0; most-- {
			if check(c, args[:most]) == nil { // it is not that one is missing
				text = fmt.Sprintf("%.80q is too much: %s", args[most], remedy)
				break
			}
		}
		return &usageError{err: errors.New(text), help: c.CommandPath() + " --help"}
	}
}

// noArguments refuses arguments of a command that takes none.
func noArguments(c *cobra.Command, args []string) error {
	return named(cobra.NoArgs, c.CommandPath()+" takes no arguments")(c, args)
}

// started tells of a sandbox that runs on.
func started(ui *ui, sb *sandbox.Sandbox) error {
	for _, w := range sb.Info().Warnings {
		ui.note("%s", w)
	}
	return ui.print(sb.Name() + "\n")
}
