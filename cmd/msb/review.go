package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/review"
)

// reviewFlags is the command line of `msb review`.
type reviewFlags struct {
	policy, against, floor, failOn, learn, html string
	host                                        []string
	asJSON, changed, failOnSet                  bool
}

func newReviewCommand(ui *ui) *cobra.Command {
	var f reviewFlags
	c := &cobra.Command{
		Use:   "review --policy FILE CAPTURE...",
		Short: "Ask what a policy would have done to a capture",
		Long: `Rebuilds the flows of captures (pcapng of --pcap, or pcap and pcapng of other
tools) and judges each with the gateway's own code, offline, with the names from
the capture's DNS answers. Exit code 125 if a capture can't be read to its end;
exit code 3 if a condition of --fail-on holds:

  allowed-private   let out to an address that isn't public
  changed           the verdict differs from the recorded one, or from --against
  loosened          it was denied and would be let out, or inspected and no longer would be
  tightened         the other way round
  denied, undecided flows, names and requests with that verdict
  unreadable        a capture is damaged, or says that packets or verdicts are missing`,
		Example: `  msb run --policy policy.toml --pcap out.pcapng
  msb review --policy stricter.toml out.pcapng
  msb review --policy new.toml --against old.toml --changed out.pcapng
  msb review --policy policy.toml --fail-on allowed-private,loosened --html report.html out.pcapng
  msb review --policy base.toml --learn learned.toml out.pcapng`,
		Args: named(cobra.MinimumNArgs(1), "name the capture"),
		RunE: func(c *cobra.Command, args []string) error {
			f.failOnSet = c.Flags().Changed("fail-on")
			return runReview(c.Context(), ui, &f, args)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.policy, "policy", "", "policy `file` to judge by, or the name of a sandbox or preset")
	floorFlag(c, &f.floor)
	fl.StringVar(&f.against, "against", "", "another policy `file`, to compare with")
	fl.BoolVar(&f.changed, "changed", false, "show only what differs from --against, or from what was recorded")
	fl.StringVar(&f.failOn, "fail-on", "", "exit with code 3 on `CONDITION,...`")
	fl.StringVar(&f.learn, "learn", "", "write a policy that lets through what was seen to this `file`")
	fl.StringVar(&f.html, "html", "", "write the report as a page to this `file`")
	fl.StringArrayVar(&f.host, "host-addr", nil, "an `address` of the host that the sandbox ran on (repeatable)")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON")
	required(c, "policy")
	return c
}

// conditions reads --fail-on. An empty value, as from an unset variable, is an error: otherwise every review would pass.
func (f *reviewFlags) conditions() ([]review.Condition, error) {
	all, err := review.ParseConditions(f.failOn)
	if err == nil && f.failOnSet && len(all) == 0 {
		err = errors.New("it names no condition: give one, or leave the option out")
	}
	return all, err
}

func (f *reviewFlags) options(captures []string) (review.Options, error) {
	o := review.Options{Captures: captures, Learn: f.learn != ""}
	var err error
	if o.Policy, err = loadUnder(f.floor, f.policy); err != nil {
		return o, err
	}
	if f.against != "" {
		if o.Against, err = loadUnder(f.floor, f.against); err != nil {
			return o, err
		}
	}
	for _, text := range f.host {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return o, &usageError{err: fmt.Errorf("--host-addr: %w", err), help: "msb review --help"}
		}
		o.Host = append(o.Host, a)
	}
	return o, nil
}

func runReview(ctx context.Context, ui *ui, f *reviewFlags, captures []string) error {
	err := apart(append([]namedFile{
		{"--html", f.html, true}, {"--learn", f.learn, true}, {"--policy", f.policy, false}, {"--against", f.against, false}, {"--floor", f.floor, false},
	}, readFiles(captures)...), "msb review --help")
	if err != nil {
		return err
	}
	conditions, err := f.conditions()
	if err != nil {
		return &usageError{err: fmt.Errorf("--fail-on: %w", err), help: "msb review --help"}
	}
	o, err := f.options(captures)
	if err != nil {
		return err
	}
	report, err := review.Run(ctx, o)
	if err != nil {
		return err
	}
	for _, d := range report.Damage {
		ui.warn("%s", d)
	}
	if report.Unread() == len(captures) {
		return exitCode(exitOther) // there is nothing to show
	}
	if f.compares(conditions) && !report.HasRecorded() && report.Len() > 0 {
		return errors.New("the captures hold no verdicts to compare with, which only msb writes into them; give the other policy with --against")
	}
	if err := f.print(ui, report); err != nil {
		return err
	}
	if f.learn != "" {
		if err := writeWhole(f.learn, 0o600, report.Learned()); err != nil {
			return err
		}
	}
	if f.html != "" {
		if err := writeReport(f.html, report, captures); err != nil {
			return err
		}
	}
	var code error
	if len(report.Damage) > 0 {
		code = exitCode(exitOther)
	}
	for _, c := range conditions {
		if n := report.Count(c); n > 0 {
			ui.note("%s: %d", c, n)
			code = exitCode(exitDenied)
		}
	}
	return code
}

// compares reports whether the recorded verdicts are asked for.
func (f *reviewFlags) compares(conditions []review.Condition) bool {
	return f.against == "" && (f.changed || slices.ContainsFunc(conditions, func(c review.Condition) bool {
		return c == review.IsChanged || c == review.Loosened || c == review.Tightened
	}))
}

func (f *reviewFlags) print(ui *ui, report *review.Report) error {
	if f.asJSON {
		w := bufio.NewWriter(ui.out)
		return errors.Join(report.WriteJSON(w), w.Flush())
	}
	if err := report.WriteTable(ui.out, f.changed); err != nil {
		return err
	}
	return ui.print("\n" + strings.Join(report.Summary(), "\n") + "\n")
}

func writeReport(path string, report *review.Report, captures []string) error {
	names := make([]string, 0, len(captures))
	for _, c := range captures {
		names = append(names, filepath.Base(c))
	}
	var page bytes.Buffer
	if err := report.WriteHTML(&page, "msb review of "+strings.Join(names, ", ")); err != nil {
		return err
	}
	return writeWhole(path, 0o600, page.Bytes())
}
