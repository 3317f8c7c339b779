package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies/grants"
	"github.com/msb-project/msb/sandbox"
)

// trustFlag adds --trust to a command that runs policies.
func trustFlag(fl *pflag.FlagSet, trust *bool) {
	fl.BoolVar(trust, "trust", false, "approve what the policy takes from this machine, for this once; for files that you wrote")
}

func newPolicyTrust(ui *ui) *cobra.Command {
	var forget, show, list bool
	var flags listFlags
	c := &cobra.Command{
		Use:   "trust [flags] FILE...",
		Short: "Approve what policy files take from this machine",
		Long: `Prints what each policy takes from this machine (sources of secrets, local images,
private ranges, targets of [hosts], resolvers, a proxy, extra roots) and approves
it: for you, for this file, and for these things. Edited rules need no new
approval; a policy that takes more does. --show approves nothing; its exit code
is 3 if something is not approved.`,
		Example: `  msb policy trust --show policy.toml
  msb policy trust policy.toml
  msb policy trust --list
  msb policy trust --forget policy.toml`,
		Args: func(_ *cobra.Command, files []string) error {
			var err error
			switch {
			case list && show || list && forget || show && forget:
				err = errors.New("--show, --list and --forget are three different things; write one of them")
			case list != (len(files) == 0):
				err = errors.New("name the policy file, or write --list and no file")
			case !list && flags != (listFlags{}):
				err = errors.New("--json, --quiet and --format are for --list")
			}
			if err != nil {
				return &usageError{err: err, help: "msb policy trust --help"}
			}
			return nil
		},
		RunE: func(c *cobra.Command, files []string) error {
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			switch {
			case list:
				return listTrusted(ui, c, home, &flags)
			case show:
				lacks := false
				err := forEach(files, func(file string) error {
					missing, err := showGrants(ui, home, file)
					lacks = lacks || missing
					return err
				})
				if err == nil && lacks {
					return exitCode(exitDenied)
				}
				return err
			case forget:
				return forEach(files, func(file string) error { return forgetFile(ui, home, file) })
			}
			return forEach(files, func(file string) error { return trustFile(ui, home, file) })
		},
	}
	c.Flags().BoolVar(&show, "show", false, "print what the policies take and whether it is approved; approve nothing")
	c.Flags().BoolVar(&list, "list", false, "print what was approved, for all files")
	c.Flags().BoolVar(&forget, "forget", false, "take the approval back")
	flags.register(c)
	return c
}

// showGrants prints what a policy takes, and whether each thing is approved. It reports whether an approval is missing.
func showGrants(ui *ui, home *sandbox.Home, file string) (bool, error) {
	p, err := sandbox.LoadPolicy(file)
	if err != nil {
		return false, err
	}
	set, err := home.Trust().Grants(p)
	if err != nil {
		return false, err
	}
	approved, err := home.Trust().Approved(file)
	if err != nil {
		return false, err
	}
	missing := set.Beyond(approved)
	var have, optional grants.Set
	for _, g := range set {
		switch {
		case approved.Has(g):
			have = append(have, g)
		case g.Optional():
			optional = append(optional, g)
		}
	}
	text := audit.Printable(file) + ":"
	if len(set) == 0 {
		text += " takes nothing from this machine"
	}
	text += "\n"
	for _, part := range []struct {
		head string
		set  grants.Set
	}{{"approved", have}, {"not approved", missing}, {"not approved, and done without", optional}} {
		if len(part.set) > 0 {
			text += part.head + ":\n" + listed(part.set)
		}
	}
	return len(missing) > 0, ui.print(text)
}

func listTrusted(ui *ui, c *cobra.Command, home *sandbox.Home, flags *listFlags) error {
	all, err := home.Trust().List()
	if err != nil {
		return err
	}
	if *flags != (listFlags{}) {
		return printList(ui, c, flags, all, func(a *sandbox.Approval) string { return audit.Printable(a.File) }, nil)
	}
	if len(all) == 0 {
		ui.note("nothing was approved")
	}
	for _, a := range all {
		gone := ""
		if _, err := os.Lstat(a.File); err != nil {
			gone = " (the file is gone; --forget takes the approval back)"
		}
		if err := ui.print(audit.Printable(a.File) + gone + "\n" + listed(a.Grants)); err != nil {
			return err
		}
	}
	return nil
}

func forgetFile(ui *ui, home *sandbox.Home, file string) error {
	set, err := home.Trust().Forget(file)
	if err != nil {
		return err
	}
	if len(set) == 0 {
		return ui.print(audit.Printable(file) + ": nothing was approved\n")
	}
	return ui.print(audit.Printable(file) + ": no longer approved\n" + listed(set))
}

func trustFile(ui *ui, home *sandbox.Home, file string) error {
	p, err := sandbox.LoadPolicy(file)
	if err != nil {
		return err
	}
	set, err := home.Trust().Grants(p)
	if err != nil {
		return err
	}
	if err := home.Trust().Approve(file, set); err != nil {
		return err
	}
	if len(set) == 0 {
		return ui.print(audit.Printable(file) + ": takes nothing from this machine\n")
	}
	return ui.print(audit.Printable(file) + ": approved\n" + listed(set))
}

// listed has a line for each grant, without characters that a terminal acts on.
func listed(set grants.Set) string {
	var b strings.Builder
	for _, line := range set.Lines() {
		b.WriteString("  " + audit.Printable(line) + "\n")
	}
	return b.String()
}

// maxAsked bounds how often one start asks: what a policy takes can change under the question.
const maxAsked = 3

// approved calls start; if approvals are missing, it asks for them at a terminal and calls start again.
func approved(ctx context.Context, ui *ui, start func() error) error {
	for asked := 0; ; asked++ {
		err := start()
		var lacks *sandbox.GrantsError
		if !errors.As(err, &lacks) {
			return err
		}
		if asked == maxAsked || !isTerminal(os.Stdin) || !isTerminal(os.Stderr) {
			return fmt.Errorf("%w; --trust approves it for one run", err)
		}
		yes, err := ask(ctx, ui, lacks)
		if err != nil {
			return err
		}
		if !yes {
			ui.warn("not approved; nothing was started")
			return exitCode(exitPolicyInvalid)
		}
		home, err := sandbox.OpenHome("")
		if err == nil {
			err = home.Trust().Approve(lacks.File, lacks.All)
		}
		if err != nil {
			return err
		}
	}
}

// ask shows what is new and reads the answer. It reads one line only, since the rest of the input is for the guest.
func ask(ctx context.Context, ui *ui, lacks *sandbox.GrantsError) (bool, error) {
	_, _ = fmt.Fprintf(ui.err, "msb: %s takes from this machine what you have not approved:\n%smsb: approve it for this file, from now on? [y/N] ", audit.Printable(lacks.File), listed(lacks.New))
	answer := make(chan string, 1)
	go func() { answer <- readLine(64) }()
	select {
	case <-ctx.Done():
		_, _ = fmt.Fprintln(ui.err)
		return false, context.Cause(ctx)
	case a := <-answer:
		a = strings.ToLower(strings.TrimSpace(a))
		return a == "y" || a == "yes", nil
	}
}

// readLine reads one line of at most that many bytes, and nothing after it.
func readLine(longest int) string {
	var line []byte
	for one := make([]byte, 1); len(line) < longest; {
		n, err := os.Stdin.Read(one)
		if n == 0 || err != nil || one[0] == '\n' {
			break
		}
		line = append(line, one[0])
	}
	return string(line)
}
