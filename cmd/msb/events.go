package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox"
)

// eventsFlags is the command line of `msb events`.
type eventsFlags struct {
	follow, denied, json bool
	filters              []string
	kinds                []audit.Kind // of filters; none is all
}

func newEventsCommand(ui *ui) *cobra.Command {
	var f eventsFlags
	c := &cobra.Command{
		Use:   "events [flags] NAME",
		Short: "Show what became of a sandbox with a name, and what the gateway decided for it",
		Long: `Prints the audit log of a sandbox that has a name, from its oldest line on, whether
it runs or not: what the gateway decided, and the sandbox's life (create, start,
die, restart, stop, remove, and exec_create, exec_start and exec_die). With -f it goes on, over stops and starts, until the sandbox is
removed. docs/audit.md has every key of --json.`,
		Example: `  msb events web --denied
  msb events web -f --json | jq .host
  msb events web -f --filter event=die --filter event=stop`,
		Args: named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.readFilters(); err != nil {
				return err
			}
			return untilSignalled(c.Context(), func(ctx context.Context) error { return showEvents(ctx, ui, &f, args[0]) })
		},
	}
	fl := c.Flags()
	fl.BoolVarP(&f.follow, "follow", "f", false, "wait for more, until the sandbox is removed")
	fl.BoolVar(&f.denied, "denied", false, "only what was denied, or would be but for report mode")
	fl.StringArrayVar(&f.filters, "filter", nil, "only lines of a kind: `event=KIND`, such as event=die or event=flow.open (repeatable: any may match)")
	fl.BoolVar(&f.json, "json", false, "print the log's own lines, a JSON object each")
	return c
}

// dockerEvents are the names that docker gives the kinds of events.
var dockerEvents = map[string]audit.Kind{
	"create": audit.SandboxCreate, "start": audit.SandboxStart, "die": audit.SandboxDie, "restart": audit.SandboxRestart, "stop": audit.SandboxStop,
	"destroy": audit.SandboxRemove, "remove": audit.SandboxRemove,
	"exec_create": audit.ExecCreate, "exec_start": audit.ExecStart, "exec_die": audit.ExecDie,
}

// readFilters reads --filter. It accepts any kind with a dot, since a log may hold events of a later msb.
func (f *eventsFlags) readFilters() error {
	for _, filter := range f.filters {
		word, ok := strings.CutPrefix(filter, "event=")
		kind, docker := dockerEvents[word]
		if !docker {
			kind = audit.Kind(word)
		}
		if !ok || !docker && !strings.Contains(word, ".") {
			return &usageError{err: fmt.Errorf("--filter %.80q: write event=KIND, such as event=die, with a kind of docs/audit.md or one of docker's that msb logs: %s", filter, strings.Join(slices.Sorted(maps.Keys(dockerEvents)), ", ")), help: "msb events --help"}
		}
		f.kinds = append(f.kinds, kind)
	}
	return nil
}

// eventsPause is the time between two checks of a followed log.
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
		if lines++; f.denied && !ev.Denied() && !refused || len(f.kinds) > 0 && !slices.Contains(f.kinds, ev.Kind) {
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
