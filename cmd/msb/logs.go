package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
)

func newLogsCommand(ui *ui) *cobra.Command {
	var f logFlags
	var console bool
	c := &cobra.Command{
		Use:   "logs [flags] NAME",
		Short: "Show the output of the command that msb run -d left running",
		Long: `Prints what the command of msb run -d wrote, whether it and its sandbox run or not:
its standard output on standard output, its standard error on standard error. It is
the job "main" of the sandbox; msb job logs has the others. The newest 7 to 8 MiB
are kept. Bytes come as the command wrote them, terminal escapes included; --json
escapes them. --console prints the kernel's console instead.`,
		Example: `  msb run -d --name beat -- sh -c 'while sleep 1; do date; done'
  msb logs -f -n 10 beat
  msb logs --since 5m -t beat
  msb logs -f --grep "error|fail" beat
  msb logs --console beat`,
		Args: named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			o, err := f.options(time.Now())
			if err == nil && console && (f.follow || f.since != "" || f.json || f.timestamps || f.grep != "") {
				err = errConsole
			}
			if err != nil {
				return &usageError{err: err, help: "msb logs --help"}
			}
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			if console {
				return showConsole(ui, home, args[0], o.Tail)
			}
			return untilSignalled(c.Context(), func(ctx context.Context) error {
				j, err := home.Job(args[0], sandbox.MainJob)
				if errors.Is(err, sandbox.ErrNoJob) {
					return fmt.Errorf("%w: %s was not made by msb run -d with a command; msb job ls %s lists its jobs, msb events %s shows what the gateway decided", sandbox.ErrNoJob, args[0], args[0], args[0])
				}
				if err != nil {
					return err
				}
				return f.show(ctx, ui, j, o)
			})
		},
	}
	f.register(c.Flags())
	c.Flags().BoolVar(&console, "console", false, "print the log of the guest's console instead, of its last run")
	return c
}

// errConsole is about a log that has no times.
var errConsole = errors.New("--console prints a file without times, and takes no flag but --tail; msb inspect NAME names the file, for tail -F")

// showConsole prints the last lines of the console's log; tail is as in sandbox.LogOptions.
func showConsole(ui *ui, home *sandbox.Home, name string, tail int) error {
	all, err := home.Console(name)
	if err != nil {
		return err
	}
	return ui.print(string(lastLines(all, tail)))
}

// lastLines is the end of b; n is as in sandbox.LogOptions.
func lastLines(b []byte, n int) []byte {
	if n == 0 {
		return b
	}
	end := len(bytes.TrimSuffix(b, []byte("\n")))
	for ; n > 0 && end >= 0; n-- {
		end = bytes.LastIndexByte(b[:end], '\n')
	}
	if n < 0 {
		return nil
	}
	return b[end+1:]
}
