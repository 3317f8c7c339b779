package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/probe"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/secretproxy"
)

func newPolicyCommand(ui *ui) *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Check, explain and compare policy files",
		Long:  "A policy file says what a sandbox may reach and where its secrets may go; docs/policy.md has every key.",
		Example: `  msb policy check policy.toml
  msb policy explain policy.toml --to api.github.com:443 --method POST --path /repos/acme/x
  msb policy from-flags --preset pypi --secret TOKEN=env:TOKEN@api.example.com
  msb policy diff old.toml new.toml
  msb policy trust policy.toml`,
	}
	c.AddCommand(newPolicyCheck(ui), newPolicyExplain(ui), newPolicyShow(ui), newPolicyFromFlags(ui), newPolicyDiff(ui), newPolicyTrust(ui), newPolicySchema(ui), newPolicyPresets(ui))
	return onlyGroups(c)
}

func newPolicyCheck(ui *ui) *cobra.Command {
	var floor string
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Say what is wrong with policy files: place, fault and remedy",
		Example: `  msb policy check policy.toml
  msb policy check --floor ours.toml theirs.toml`,
		Args: named(cobra.MinimumNArgs(1), "name the policy file"),
		RunE: func(_ *cobra.Command, files []string) error {
			var errs []error
			for _, f := range files {
				p, err := checked(floor, f)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				for _, e := range policies.Evasions(p) {
					if err := ui.print("warning: " + e.Error() + "\n"); err != nil {
						return err
					}
				}
				if err := ui.print(fmt.Sprintf("%s: ok, %s, %s, %s\n", f, count(len(p.Egress.Allow), "allow rule"), count(len(p.Egress.Deny), "deny rule"), count(len(p.Secrets), "secret"))); err != nil {
					return err
				}
				for _, r := range policies.Fronting(p) {
					if err := ui.print("note: " + r.Error() + "\n"); err != nil {
						return err
					}
				}
			}
			return errors.Join(errs...)
		},
	}
	floorFlag(c, &floor)
	return c
}

// checked reads a policy and finds all of its faults, also in the valid parts of a file that has faults elsewhere.
func checked(floorFile, arg string) (*policies.Policy, error) {
	p, err := policyNamed(arg)
	var wrong policies.ErrorList
	if errors.As(err, &wrong) {
		p, _ = policies.LoadSound(arg) // its error is the same; of a sandbox's file there is none
	}
	if p == nil {
		return nil, err
	}
	if floorFile != "" {
		floor, floorErr := sandbox.LoadPolicy(floorFile)
		if floorErr != nil {
			return nil, policies.JoinErrors(err, floorErr)
		}
		tight, tightErr := policies.Tighten(floor, p)
		if err = policies.JoinErrors(err, tightErr); err == nil {
			p = tight
		}
	}
	return p, policies.JoinErrors(err, egress.CheckNames(p), secretproxy.CheckFiles(p))
}

func newPolicyShow(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "show FILE|SANDBOX|PRESET",
		Short: "Print a policy after its includes and defaults, or that of a sandbox or a preset",
		Example: `  msb policy show policy.toml
  msb policy show agent`,
		Args: named(cobra.ExactArgs(1), "name a policy file, a sandbox or a preset"),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := policyNamed(args[0])
			if err != nil {
				return err
			}
			return ui.print(notInForce(args[0]) + string(policies.Encode(p)))
		},
	}
}

// notInForce is a comment for a policy that the running sandbox refused.
func notInForce(arg string) string {
	if _, err := os.Stat(arg); err == nil {
		return ""
	}
	home, err := sandbox.OpenHome("")
	if err != nil || sandbox.CheckName(arg) != nil {
		return ""
	}
	st, err := home.Inspect(arg)
	if err != nil || !st.Running || st.PolicyRefused == "" {
		return ""
	}
	return "# not in force, the one before is: " + audit.Printable(st.PolicyRefused) + "\n"
}

// policyNamed is the policy of a file; if there is no such file, of the sandbox or preset of that name.
func policyNamed(arg string) (*policies.Policy, error) {
	p, err := sandbox.LoadPolicy(arg)
	if sandbox.KindOf(err) != sandbox.KindPolicyMissing {
		return p, err
	}
	if home, homeErr := sandbox.OpenHome(""); homeErr == nil && sandbox.CheckName(arg) == nil {
		if p, err := home.Policy(arg); !errors.Is(err, sandbox.ErrNoSandbox) {
			return p, err
		}
	}
	if slices.Contains(policies.Presets(), arg) {
		return policies.Preset(arg)
	}
	if strings.ContainsAny(arg, "/.") {
		return nil, err
	}
	return nil, sandbox.Fail(fmt.Errorf("%w: there is no file, sandbox or preset %q; %s`msb ls` and `msb policy presets` list those there are",
		sandbox.ErrPolicyMissing, arg, didYouMean(arg, append(sandboxNames(), policies.Presets()...))))
}

func newPolicyDiff(ui *ui) *cobra.Command {
	var asJSON bool
	var floor string
	c := &cobra.Command{
		Use:   "diff A B",
		Short: "Say what becomes reachable, what stops and which keys differ when B replaces A",
		Example: `  msb policy diff old.toml new.toml
  msb policy diff agent new.toml         # a sandbox's policy and a file`,
		Long: `Says which destinations open, close or are judged in another way when B replaces
A, and lists every key whose value differs. Nothing is resolved or sent, and no
secret is read. Exit code 0 if the policies are the same, 3 if they differ.`,
		Args: named(cobra.ExactArgs(2), "name two policies, the one before and the one after: files, sandboxes or presets"),
		RunE: func(_ *cobra.Command, args []string) error {
			a, err := loadUnder(floor, args[0])
			if err != nil {
				return err
			}
			b, err := loadUnder(floor, args[1])
			if err != nil {
				return err
			}
			found, err := probe.Diff(a, b)
			if err != nil {
				return err
			}
			if err := printComparison(ui, found, asJSON); err != nil || found.Same() {
				return err
			}
			return exitCode(exitDiffers)
		},
	}
	floorFlag(c, &floor)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func printComparison(ui *ui, found *probe.Comparison, asJSON bool) error {
	switch {
	case asJSON:
		return ui.json(found)
	case found.Same():
		return ui.print("the policies are the same: both let out the same\n")
	}
	var rows [][]string
	for _, c := range found.Flows {
		what := strings.Join(slices.DeleteFunc([]string{c.Target, c.Method, c.Path}, func(s string) bool { return s == "" }), " ")
		if c.Said != "" {
			what += " (" + c.Said + ")"
		}
		rows = append(rows, []string{c.Kind, what, c.Before + " → " + c.After, c.Rule})
	}
	for _, k := range found.Keys {
		rows = append(rows, []string{"key", k.Key, k.Before + " → " + k.After})
	}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = audit.Printable(cell)
		}
	}
	return ui.table(rows)
}

func newPolicySchema(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON schema of policy files, for editors",
		Example: `  msb policy schema > policy.schema.json`,
		Args:    noArguments,
		RunE:    func(*cobra.Command, []string) error { return ui.print(string(policies.Schema())) },
	}
}

// loadUnder reads a policy by its file or name (policyNamed) and holds it under an operator's floor; "" is none.
func loadUnder(floor, path string) (*policies.Policy, error) {
	p, err := policyNamed(path)
	if err != nil || floor == "" {
		return p, err
	}
	f, err := sandbox.LoadPolicy(floor)
	if err != nil {
		return nil, err
	}
	tight, err := policies.Tighten(f, p)
	return tight, sandbox.Fail(err)
}

// floorFlag adds --floor to a command that reads policies.
func floorFlag(c *cobra.Command, floor *string) {
	c.Flags().StringVar(floor, "floor", "", "judge under an operator's policy `file` too, as msb run --floor does")
}
