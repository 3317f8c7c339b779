package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/msb-project/msb/policies"
)

// ruleFlags adds the flags that say what a policy file could.
func ruleFlags(fl *pflag.FlagSet, f *policies.Flags) {
	fl.StringArrayVar(&f.Allow, "allow", nil, "let out `HOST:PORT[/udp]`, beside what the policy allows (repeatable)")
	fl.StringArrayVar(&f.Deny, "deny", nil, "never let out `HOST[:PORT]`, whatever allows it (repeatable)")
	fl.StringArrayVar(&f.Presets, "preset", nil, "let out what the preset of this `name` does: msb policy presets (repeatable)")
	fl.StringArrayVar(&f.Hosts, "add-host", nil, "`NAME=TARGET`: lead connections to a name to ADDRESS[:PORT], this machine's too (repeatable)")
	fl.StringArrayVar(&f.Secrets, "secret", nil, "`NAME=SOURCE@HOST[:PORT][,in=PLACE]`: put a value into requests to HOST; SOURCE is env:NAME, file:PATH or command:PROGRAM, PLACE is header:Authorization unless given (repeatable)")
}

// addRules adds flags to a policy; help names the command's.
func addRules(p *policies.Policy, f policies.Flags, help string) error {
	var together policies.ErrorList
	err := policies.AddFlags(p, f)
	if err != nil && !errors.As(err, &together) {
		return &usageError{err: err, help: help}
	}
	return err
}

func newPolicyFromFlags(ui *ui) *cobra.Command {
	var rules policies.Flags
	c := &cobra.Command{
		Use:   "from-flags [flags]",
		Short: "Print the policy file that --allow, --secret and their like mean",
		Example: `  msb policy from-flags --preset pypi --allow api.example.com:8443/https
  msb policy from-flags --secret TOKEN=env:TOKEN@api.example.com > policy.toml`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			p := policies.Default()
			if err := addRules(p, rules, "msb policy from-flags --help"); err != nil {
				return err
			}
			return ui.print(string(policies.Encode(p)))
		},
	}
	ruleFlags(c.Flags(), &rules)
	return c
}
