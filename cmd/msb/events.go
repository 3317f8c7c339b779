package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox"
)

// eventsFlags is the command line of `msb events`.
type eventsFlags struct{ follow, denied, json bool }

func newEventsCommand(ui *ui) *cobra.Command {
	var f eventsFlags
	c := &cobra.Command{
		Use:   "events [flags] NAME",
		Short: "Show what the gateway decided for a sandbox with a name",
		Long: `Prints the audit log of a sandbox that has a name, from its oldest line on, whether
it runs or not. With -f it goes on, over stops and starts, until the sandbox is
removed. docs/audit.md has every key of --json.`,
		Example: `  msb events web --denied
  msb events web -f --json | jq .host`,
		Args: named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return untilSignalled(c.Context(), func(ctx context.Context) error { return showEvents(ctx, ui, &f, args[0]) })
		},
	}
	fl := c.Flags()
	fl.BoolVarP(&f.follow, "follow", "f", false, "wait for more, until the sandbox is removed")
	fl.BoolVar(&f.denied, "denied", false, "only what was denied, or would be but for report mode")
	fl.BoolVar(&f.json, "json", false, "print the log's own lines, a JSON object each")
	return c
}

// eventsPause is the time between two looks at a log that is followed.
const eventsPause = 200 * time.Millisecond

func showEvents(ctx context.Context, ui *ui, f *eventsFlags, name string) error {
	home, err := sandbox.OpenHome("")
	if err != nil {
		return err
	}
	st, err := home.Inspect(name)
	if err != nil {
		return err
	}
	made, err := os.Stat(st.Dir)
	if err != nil {
		return err
	}
	tail := audit.NewTail(st.Audit)
	defer func() { _ = tail.Close() }() // it was only read
	lines := 0
	show := func(line []byte, ev *audit.Event) error {
		refused := ev.Kind == audit.PolicyReload && ev.Action == "deny" // the policy was, and the old one is in force
		if lines++; f.denied && !ev.Denied() && !refused {
			return nil
		}
		return printEvent(ui, line, ev, f.json)
	}
	tick := time.NewTicker(eventsPause)
	defer tick.Stop()
	for {
		there, err := os.Stat(st.Dir)
		removed := err != nil || !os.SameFile(made, there) // looked at before the last lines are read
		if err := tail.Next(show); err != nil {
			if errors.Is(err, syscall.EPIPE) {
				return exitCode(exitSignalled(syscall.SIGPIPE)) // whoever read the output has what they wanted
			}
			return err
		}
		if !f.follow || removed {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	if tail.Bad > 0 {
		ui.note("%d lines of %s can't be read, and were left out", tail.Bad, st.Audit)
	}
	if lines == 0 && !f.follow {
		ui.note("nothing was written yet; `msb start %s` starts it", name)
	}
	return nil
}

// printEvent prints one line, for programs as it stands in the log.
func printEvent(ui *ui, line []byte, ev *audit.Event, asJSON bool) error {
	if !asJSON {
		return ui.print(ev.Time.Local().Format("2006-01-02 ") + audit.FormatHuman(local(ev)) + "\n")
	}
	var compact bytes.Buffer // a file that somebody edited has nothing for the terminal either
	if err := json.Compact(&compact, line); err != nil {
		return fmt.Errorf("audit log can't be read: %w", err)
	}
	return ui.print(string(audit.AppendPrintable(nil, compact.Bytes())) + "\n")
}

// local is ev in the time zone of who reads it.
func local(ev *audit.Event) audit.Event {
	e := *ev
	e.Time = e.Time.Local()
	return e
}
