package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox"
)

// withHome calls do with the state directory, until a signal ends it.
func withHome(c *cobra.Command, do func(context.Context, *sandbox.Home) error) error {
	home, err := sandbox.OpenHome("")
	if err != nil {
		return err
	}
	return untilSignalled(c.Context(), func(ctx context.Context) error { return do(ctx, home) })
}

func newEnvCommand(ui *ui) *cobra.Command {
	c := &cobra.Command{
		Use:   "env",
		Short: "Show and change the variables that every command of a sandbox gets",
		Long:  "Shows and changes the variables that -e gave a sandbox when it was made. A change needs a sandbox that is stopped, and holds from its next start on.",
		Example: `  msb env set web LANG=C.UTF-8 DEBUG=1
  msb env unset web DEBUG
  msb env ls web`,
	}
	var list listFlags
	ls := &cobra.Command{
		Use:     "ls [flags] NAME",
		Aliases: []string{"list"},
		Short:   "List the variables that every command of a sandbox gets",
		Example: `  msb env ls web --format "{{.name}}"`,
		Args:    named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(_ context.Context, home *sandbox.Home) error {
				env, err := home.Env(args[0])
				if err != nil {
					return err
				}
				return printEnv(ui, c, &list, env)
			})
		},
	}
	list.register(ls)
	c.AddCommand(ls, &cobra.Command{
		Use:     "set NAME VARIABLE[=VALUE]...",
		Short:   "Set variables, or pass on those of this shell, from the next start on",
		Example: `  msb env set web LANG=C.UTF-8 EDITOR       # EDITOR as it is here`,
		Args:    named(cobra.MinimumNArgs(2), "name the sandbox and the variables, as in msb env set web LANG=C.UTF-8"),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				env := make([]string, 0, len(args))
				for _, e := range args[1:] {
					if !strings.Contains(e, "=") {
						value, ok := os.LookupEnv(e)
						if !ok {
							return &usageError{err: fmt.Errorf("%.80q is not set here: write %.80s=VALUE to set it, or msb env unset to remove it", e, e), help: "msb env set --help"}
						}
						e += "=" + value
					}
					env = append(env, e)
				}
				return home.SetEnv(ctx, args[0], env...)
			})
		},
	}, &cobra.Command{
		Use:     "unset NAME VARIABLE...",
		Short:   "Remove variables, from the next start on",
		Example: `  msb env unset web DEBUG`,
		Args:    named(cobra.MinimumNArgs(2), "name the sandbox and the variables, as in msb env unset web DEBUG"),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				return home.UnsetEnv(ctx, args[0], args[1:]...)
			})
		},
	})
	return onlyGroups(c)
}

func printEnv(ui *ui, c *cobra.Command, list *listFlags, env []string) error {
	type row struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	all := make([]row, 0, len(env))
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		all = append(all, row{name, value})
	}
	return printList(ui, c, list, all, func(r *row) string { return audit.Printable(r.Name) }, func(all []row) [][]string {
		rows := make([][]string, 0, len(all))
		for _, r := range all {
			rows = append(rows, []string{audit.Printable(r.Name + "=" + r.Value)})
		}
		return rows
	})
}
