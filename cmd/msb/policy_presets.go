package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

func newPolicyPresets(ui *ui) *cobra.Command {
	type row struct {
		Name string `json:"name"`
	}
	var flags listFlags
	c := &cobra.Command{
		Use:   "presets [flags] [NAME]",
		Short: `List the presets that include = ["NAME"] takes, or print one`,
		Example: `  msb policy presets
  msb policy presets pypi`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				if flags != (listFlags{}) {
					return &usageError{err: errors.New("--json, --quiet and --format are for the list; a preset is printed as the policy file that it is"), help: "msb policy presets --help"}
				}
				p, err := policies.Preset(args[0])
				if err != nil {
					return sandbox.Fail(fmt.Errorf("%w: %w", sandbox.ErrPolicyMissing, err))
				}
				return ui.print(string(policies.Encode(p)))
			}
			var all []row
			for _, name := range policies.Presets() {
				all = append(all, row{name})
			}
			return printList(ui, c, &flags, all, func(r *row) string { return r.Name }, func(all []row) (rows [][]string) {
				for _, r := range all {
					rows = append(rows, []string{r.Name})
				}
				return rows
			})
		},
	}
	flags.register(c)
	return c
}
