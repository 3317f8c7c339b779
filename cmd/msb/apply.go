package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox"
)

// applyFlags is the command line of `msb apply`.
type applyFlags struct {
	allow       []string
	interactive bool
	quiet       bool
}

func newApplyCommand(ui *ui) *cobra.Command {
	var f applyFlags
	c := &cobra.Command{
		Use:   "apply [flags] NAME [PATH...]",
		Short: "Write what a sandbox has changed in its directories of -v HOST:GUEST:cow to this machine",
		Long: `Writes the changes that msb diff shows to this machine: all of them, or those at
the PATHs. Each file is replaced at once or not at all. Refused are changes of
files that this machine has changed since the sandbox saw them, what programs of
this machine run or are steered by without being asked (hooks and settings of
git, editors, shells, tools), and new executable bits, each under a name that
--allow takes; and whatever is said, links that lead out of the directory,
hidden files, devices, and files that confine the sandbox. The rest is applied
all the same; the exit code is 3 then. While the sandbox runs it may change its
files again: look with -i, which writes what it has shown, or stop it first.`,
		Example: `  msb apply agent
  msb apply -i agent
  msb apply --allow exec agent scripts/build.sh`,
		Args: named(cobra.MinimumNArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			ui.quiet = f.quiet
			if f.interactive && !isTerminal(os.Stdin) {
				return &usageError{err: errors.New("-i asks at the terminal, and standard input is none; name the files instead"), help: "msb apply --help"}
			}
			return untilSignalled(c.Context(), func(ctx context.Context) error {
				return withChanges(ctx, ui, args[0], func(all []*sandbox.ChangedDirectory) error {
					return applyAll(ctx, ui, &f, all, args[1:])
				})
			})
		},
	}
	c.Flags().StringArrayVar(&f.allow, "allow", nil, "apply what is refused by this `name`, such as exec or changed (repeatable)")
	c.Flags().BoolVarP(&f.interactive, "interactive", "i", false, "show each change and ask")
	c.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print nothing but refusals and errors")
	return c
}

func applyAll(ctx context.Context, ui *ui, f *applyFlags, all []*sandbox.ChangedDirectory, paths []string) error {
	chosen, err := choose(all, paths)
	if err != nil {
		return err
	}
	applied, refused := 0, 0
	for i, d := range all {
		for _, c := range chosen[i] {
			if r := c.Refused(func(name string) bool { return slices.Contains(f.allow, name) }); r != nil {
				refused++
				ui.warn("%s: refused%s: %s", path.Join(d.Guest, c.Path), overridden(r), r.Why)
				continue
			}
			if f.interactive {
				answer, err := askChange(ctx, ui, d, c)
				if meanwhile(err) { // what was not shown is not applied
					refused++
					ui.warn("%s: %s", path.Join(d.Guest, c.Path), sandbox.ErrChanged.Error())
					continue
				}
				if err != nil {
					return err
				}
				if answer == "q" {
					return ended(refused)
				}
				if answer != "y" {
					continue
				}
			}
			err := d.Apply(ctx, c, f.allow)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil { // the others are applied all the same
				refused++
				ui.warn("%s: %s", path.Join(d.Guest, c.Path), err.Error())
				continue
			}
			applied++
			if !ui.quiet {
				if err := ui.print(fmt.Sprintf("%-8s  %s\n", c.Kind, audit.Printable(path.Join(d.Host, c.Path)))); err != nil {
					return err
				}
			}
		}
	}
	if applied+refused == 0 && !f.interactive {
		ui.note("nothing is changed")
	}
	return ended(refused)
}

func overridden(r *sandbox.ChangeRefusal) string {
	if r.Final {
		return ""
	}
	return " without --allow " + r.Name
}

// ended is the exit code of what was applied in part.
func ended(refused int) error {
	if refused > 0 {
		return exitCode(exitDenied)
	}
	return nil
}

// askChange shows a change and returns the user's answer: "y", "n" or "q".
func askChange(ctx context.Context, ui *ui, d *sandbox.ChangedDirectory, c *sandbox.Change) (string, error) {
	text, err := d.Diff(ctx, c)
	if err != nil {
		return "", err
	}
	if err := ui.print(describe(d, c) + shownText(text) + "apply it? [y]es, [n]o, [q]uit: "); err != nil {
		return "", err
	}
	line := make(chan string, 1)
	go func() { line <- readLine(64) }()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case answer := <-line:
		answer = strings.ToLower(strings.TrimSpace(answer))
		return answer[:min(1, len(answer))], nil
	}
}
