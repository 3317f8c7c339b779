package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/probe"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy"
)

func newPolicyCommand(ui *ui) *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Check, explain and compare policy files",
		Long:  "A policy file says what a sandbox may reach and where its secrets may go; docs/policy.md has every key.",
		Example: `  msb policy check policy.toml
  msb policy explain policy.toml --to api.github.com:443 --method POST --path /repos/acme/x
  msb policy diff old.toml new.toml
  msb policy trust policy.toml`,
	}
	c.AddCommand(newPolicyCheck(ui), newPolicyExplain(ui), newPolicyShow(ui), newPolicyDiff(ui), newPolicyTrust(ui), newPolicySchema(ui), newPolicyPresets(ui))
	return onlyGroups(c)
}

func newPolicyCheck(ui *ui) *cobra.Command {
	var floor string
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Say what is wrong with policy files: place, fault and remedy",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			var errs []error
			for _, f := range files {
				p, err := loadUnder(floor, f)
				if err == nil {
					err = secretproxy.CheckFiles(p)
				}
				if err != nil {
					errs = append(errs, err)
					continue
				}
				if err := ui.print(fmt.Sprintf("%s: ok, %d allow rules, %d deny rules, secrets: %d\n", f, len(p.Egress.Allow), len(p.Egress.Deny), len(p.Secrets))); err != nil {
					return err
				}
			}
			return errors.Join(errs...)
		},
	}
	floorFlag(c, &floor)
	return c
}

func newPolicyExplain(ui *ui) *cobra.Command {
	var to, at, method, path, floor string
	var asJSON bool
	c := &cobra.Command{
		Use:   "explain FILE --to HOST:PORT[/udp]",
		Short: "Show the steps by which a destination is judged",
		Long: `Shows the steps by which the policy judges a destination. Nothing is resolved
or sent: a name is taken to have a public address, or the one given with --at.
Exit code 0 for allow and inspect, 3 for deny.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := loadUnder(floor, args[0])
			if err != nil {
				return err
			}
			t, err := target(to, at, method, path)
			if err != nil {
				return err
			}
			e, err := egress.New(p)
			if err != nil {
				return err
			}
			a := probe.Ask(e, p, t)
			if err := printAnswer(ui, &a, asJSON); err != nil {
				return err
			}
			if a.Denied() {
				return exitCode(exitDenied)
			}
			return nil
		},
	}
	floorFlag(c, &floor)
	c.Flags().StringVar(&to, "to", "", "the destination, `HOST:PORT[/udp]` or HOST/icmp")
	c.Flags().StringVar(&at, "at", "", "the `address` that HOST has")
	c.Flags().StringVar(&method, "method", "", "an HTTP `method`")
	c.Flags().StringVar(&path, "path", "", "an HTTP `path`")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	_ = c.MarkFlagRequired("to") // its only error is a flag that doesn't exist
	return c
}

func printAnswer(ui *ui, a *probe.Answer, asJSON bool) error {
	if asJSON {
		return ui.json(a)
	}
	rows := make([][]string, 0, len(a.Steps))
	for _, s := range a.Steps {
		rows = append(rows, []string{s.Stage, s.What, s.Result})
	}
	if err := ui.table(rows); err != nil {
		return err
	}
	return ui.print(fmt.Sprintf("\n%s %s: %s\n", a.Action, a.Target, a.Message))
}

func newPolicyShow(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "show FILE",
		Short: "Print a policy after its includes and defaults",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := loadPolicy(args[0])
			if err != nil {
				return err
			}
			return ui.print(string(policies.Encode(p)))
		},
	}
}

func newPolicyDiff(ui *ui) *cobra.Command {
	var asJSON bool
	var floor string
	c := &cobra.Command{
		Use:   "diff A B",
		Short: "Say what becomes reachable and what stops when B replaces A",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			a, err := loadUnder(floor, args[0])
			if err != nil {
				return err
			}
			b, err := loadUnder(floor, args[1])
			if err != nil {
				return err
			}
			changes, err := probe.Diff(a, b)
			if err != nil {
				return err
			}
			return printChanges(ui, changes, asJSON)
		},
	}
	floorFlag(c, &floor)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func printChanges(ui *ui, changes []probe.Change, asJSON bool) error {
	if asJSON {
		return ui.json(changes)
	}
	if len(changes) == 0 {
		return ui.print("both let out the same\n")
	}
	rows := make([][]string, 0, len(changes))
	for _, c := range changes {
		what := c.Target
		if c.Method != "" {
			what += " " + c.Method + " " + c.Path
		}
		rows = append(rows, []string{c.Kind, what, c.Before + " → " + c.After, c.Rule})
	}
	return ui.table(rows)
}

func newPolicySchema(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of policy files, for editors",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return ui.print(string(policies.Schema())) },
	}
}
