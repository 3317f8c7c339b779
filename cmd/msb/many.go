package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
)

// manyFlags choose sandboxes besides those that are named.
type manyFlags struct {
	all     bool
	filters []string
}

// many adds --all and --filter to a command that acts on sandboxes; short is the short form of --all, "" for none. of
// chooses the states that the command applies to.
func (m *manyFlags) many(c *cobra.Command, short string, of func(*sandbox.Status) bool, do func(context.Context, []string) error) {
	c.Flags().BoolVarP(&m.all, "all", short, false, "all sandboxes, in place of names")
	c.Flags().StringArrayVar(&m.filters, "filter", nil, "all sandboxes with `label=KEY[=VALUE]`, in place of names (repeatable: all must match)")
	c.Args = func(c *cobra.Command, args []string) error {
		if !m.all && len(m.filters) == 0 {
			return named(cobra.MinimumNArgs(1), nameRemedy)(c, args)
		}
		return named(cobra.NoArgs, "name sandboxes, or give --all or --filter, but not both")(c, args)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return do(c.Context(), args)
		}
		if m.all && len(m.filters) > 0 {
			return &usageError{err: errors.New("--all with --filter: leave out one of the two"), help: c.CommandPath() + " --help"}
		}
		if err := checkFilters(m.filters); err != nil {
			return err
		}
		home, err := sandbox.OpenHome("")
		if err != nil {
			return err
		}
		list, err := home.List()
		if err != nil {
			return err
		}
		var names []string
		for i := range list {
			if matchFilters(&list[i], m.filters) && of(&list[i]) {
				names = append(names, list[i].Name)
			}
		}
		return do(c.Context(), names)
	}
}

// each is many, with --all as -a, for a command that does one thing to each sandbox and prints its name.
func (m *manyFlags) each(c *cobra.Command, ui *ui, of func(*sandbox.Status) bool, do func(*sandbox.Home, context.Context, string) error) {
	m.many(c, "a", of, func(ctx context.Context, names []string) error {
		home, err := sandbox.OpenHome("")
		if err != nil {
			return err
		}
		return untilSignalled(ctx, func(ctx context.Context) error {
			return eachName(ui, names, func(name string) error { return do(home, ctx, name) })
		})
	})
}

// The states by which sandboxes are chosen. A damaged sandbox is in no state but any.
func anyState(*sandbox.Status) bool    { return true }
func runs(s *sandbox.Status) bool      { return s.Running }
func isPaused(s *sandbox.Status) bool  { return s.Paused }
func isStopped(s *sandbox.Status) bool { return !s.Running && s.Problem == "" }
