package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/sandbox"
)

func newCacheCommand(ui *ui) *cobra.Command {
	c := &cobra.Command{
		Use:   "cache",
		Short: "Share the caches of package managers between sandboxes",
		Long: `A sandbox of msb run --cache pip,npm begins with what was committed to the caches of pip and
npm, and adds to a copy of its own. Only msb cache commit lets others have what it added.
docs/caches.md says more.`,
		Example: `  msb run -d --name build --cache pip python:3.12
  msb cache commit build
  msb cache ls`,
	}
	c.AddCommand(newCacheCommitCommand(), newCacheListCommand(ui), newCacheRemoveCommand(), newCachePruneCommand(ui))
	return onlyGroups(c)
}

func newCacheCommitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "commit NAME [TOOL...]",
		Short: "Give what a sandbox that runs added to its caches to those that start from now on",
		Long: `Adds what the sandbox NAME has written to its caches to what others begin with. With TOOL,
only of those. What it wrote is trusted by every sandbox with --cache that starts later: commit
from a sandbox in which nothing ran that you don't trust.`,
		Example: `  msb cache commit build
  msb cache commit build pip`,
		Args: named(cobra.MinimumNArgs(1), "name the sandbox; `msb ls` lists those there are"),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				_, err := home.Caches().Commit(ctx, args[0], args[1:], sandbox.StartOptions{})
				return err
			})
		},
	}
}

func newCacheListCommand(ui *ui) *cobra.Command {
	var flags listFlags
	c := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "List what sandboxes share of caches",
		Example: `  msb cache ls --format "{{.name}}: {{.bytes}}"`,
		Args:    named(cobra.NoArgs, "msb cache ls takes no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			return withHome(c, func(_ context.Context, home *sandbox.Home) error {
				all, err := home.Caches().List()
				if err != nil {
					return err
				}
				return printList(ui, c, &flags, all, func(s *sandbox.CacheStatus) string { return s.Name }, func(all []sandbox.CacheStatus) [][]string {
					now := time.Now()
					rows := append(make([][]string, 0, 1+len(all)), []string{"NAME", "SIZE", "COMMITTED", "SANDBOX"})
					for i := range all {
						s := &all[i]
						rows = append(rows, []string{s.Name, progressbar.Bytes(s.Bytes), age(now.Sub(s.Committed)) + " ago", audit.Printable(s.Sandbox)})
					}
					return rows
				})
			})
		},
	}
	flags.register(c)
	return c
}

func newCacheRemoveCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:     "rm [flags] TOOL...",
		Aliases: []string{"remove"},
		Short:   "Empty caches for sandboxes that start from now on",
		Example: `  msb cache rm pip
  msb cache rm --all`,
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return errors.New("name the tools, or give --all; `msb cache ls` lists those there are")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				return home.Caches().Remove(ctx, args, sandbox.StartOptions{})
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all of them")
	return c
}

func newCachePruneCommand(ui *ui) *cobra.Command {
	var dry bool
	var flags listFlags
	c := &cobra.Command{
		Use:     "prune [flags]",
		Short:   "Remove what only sandboxes that have stopped had of the caches, and list it with its size",
		Example: `  msb cache prune --dry-run`,
		Args:    named(cobra.NoArgs, "msb cache prune takes no arguments; msb cache rm TOOL empties one"),
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := flags.check(c); err != nil { // before anything is removed
				return err
			}
			return withHome(c, func(_ context.Context, home *sandbox.Home) error {
				pruned, err := home.Caches().Prune(dry)
				if e := printPruned(ui, c, &flags, pruned); err == nil {
					err = e
				}
				return err
			})
		},
	}
	flags.register(c)
	c.Flags().BoolVar(&dry, "dry-run", false, "remove nothing")
	return c
}
