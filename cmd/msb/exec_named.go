package main

import (
	"context"
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
		Long:  "Runs a command in a sandbox that msb start started. Its exit code is the command's.\n\n" + exitHelp,
		Example: `  msb exec agent -- uname -a
  msb exec -it agent sh
  tar c . | msb exec -i agent -- tar x -C /root`,
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
			return execNamed(c.Context(), ui, &f, args[0], argv)
		},
	}
	c.Flags().SetInterspersed(false) // what follows NAME is the command's own
	f.registerExec(c.Flags())
	return c
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
	code, err := watchDenials(ui, home, name, func() (int, error) { return execIn(ctx, ui, sb, f, argv, sig) })
	if err != nil {
		return err
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}
