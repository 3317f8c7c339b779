package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/sandbox"
)

func newDiffCommand(ui *ui) *cobra.Command {
	var list, asJSON bool
	c := &cobra.Command{
		Use:   "diff [flags] NAME [PATH...]",
		Short: "Show what a sandbox has changed in its directories of -v HOST:GUEST:cow",
		Long: `Compares the directories that a sandbox has copied on write with those of this
machine: each file that differs, what msb apply would refuse and why, and the
lines that differ of texts up to 1 MiB. A PATH is one in the guest, or without
"/" in front one from the directory's top; of a directory, all that is in it.
A sandbox that is stopped is started for it without network, and stopped again.`,
		Example: `  msb diff agent
  msb diff --list agent
  msb diff agent src/main.go
  msb diff --json agent | jq -r '.[].changes[].path'`,
		Args: named(cobra.MinimumNArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return untilSignalled(c.Context(), func(ctx context.Context) error {
				return withChanges(ctx, ui, args[0], func(all []*sandbox.ChangedDirectory) error {
					chosen, err := choose(all, args[1:])
					if err != nil {
						return err
					}
					for _, c := range chosen {
						slices.SortFunc(c, func(a, b *sandbox.Change) int { return strings.Compare(a.Path, b.Path) })
					}
					if asJSON {
						return diffJSON(ctx, ui, all, chosen, list)
					}
					return diffText(ctx, ui, all, chosen, list)
				})
			})
		},
	}
	c.Flags().BoolVarP(&list, "list", "l", false, "list the files alone")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON: the directories, their changes, and the difference of each text")
	return c
}

// openForFiles opens a sandbox for its files, those at guest if it is not "". One that is stopped takes its time, and says why.
func openForFiles(ctx context.Context, ui *ui, home *sandbox.Home, name, guest string) (*sandbox.Sandbox, error) {
	if st, err := home.Inspect(name); err == nil && !st.Running {
		if err := sandbox.CheckReach(home, name, guest); guest != "" && err != nil {
			return nil, err
		}
		ui.note("%s is stopped: it is started for this, without network, and stopped again", name)
	}
	return home.Review(ctx, name, sandbox.StartOptions{Progress: progressbar.New(os.Stderr, progressMode(true))})
}

// withChanges calls do with what a sandbox has changed.
func withChanges(ctx context.Context, ui *ui, name string, do func([]*sandbox.ChangedDirectory) error) (err error) {
	home, err := sandbox.OpenHome("")
	if err != nil {
		return err
	}
	sb, err := openForFiles(ctx, ui, home, name, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	all, err := sb.Changes(ctx)
	if err != nil {
		return err
	}
	defer func() {
		for _, d := range all {
			err = errors.Join(err, d.Close())
		}
	}()
	for _, d := range all {
		if d.Omitted > 0 {
			ui.warn("%s: %d changed files have paths longer than 3 KiB; they, and what is in them, are left out", d.Guest, d.Omitted)
		}
	}
	return do(all)
}

// choose returns the chosen changes of each directory. A path that chooses nothing is an error.
func choose(all []*sandbox.ChangedDirectory, paths []string) ([][]*sandbox.Change, error) {
	for _, p := range paths {
		found := false
		for _, d := range all {
			found = found || len(d.ApplyOrder([]string{p})) > 0
		}
		if !found {
			return nil, fmt.Errorf("%s: nothing is changed there; msb diff --list without it lists what is", p)
		}
	}
	chosen := make([][]*sandbox.Change, 0, len(all))
	for _, d := range all {
		chosen = append(chosen, d.ApplyOrder(paths))
	}
	return chosen, nil
}

func diffText(ctx context.Context, ui *ui, all []*sandbox.ChangedDirectory, chosen [][]*sandbox.Change, list bool) error {
	for i, d := range all {
		if err := ui.print(fmt.Sprintf("%s, copied from %s: %s\n", audit.Printable(d.Guest), audit.Printable(d.Host), count(len(chosen[i]), "change"))); err != nil {
			return err
		}
		for _, c := range chosen[i] {
			if err := ui.print(describe(d, c)); err != nil {
				return err
			}
			if list {
				continue
			}
			text, err := difference(ctx, ui, d, c)
			if err != nil {
				return err
			}
			if err := ui.print(shownText(text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// difference is the text of a change, empty for a file that the guest or the host changes at this moment.
func difference(ctx context.Context, ui *ui, d *sandbox.ChangedDirectory, c *sandbox.Change) ([]byte, error) {
	text, err := d.Diff(ctx, c)
	at := path.Join(d.Guest, c.Path)
	if meanwhile(err) {
		ui.warn("%s: %s", at, sandbox.ErrChanged.Error())
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return text, nil
}

// meanwhile reports whether a file changed since the comparison, in the guest or on this machine.
func meanwhile(err error) bool {
	return errors.Is(err, sandbox.ErrChanged) || errors.Is(err, fs.ErrNotExist)
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// describe is a change's line, and a line for each warning and refusal.
func describe(d *sandbox.ChangedDirectory, c *sandbox.Change) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s  %s%s\n", c.Kind, audit.Printable(path.Join(d.Guest, c.Path)), versions(c))
	for _, r := range c.Refusals {
		if r.Final {
			fmt.Fprintf(&b, "          refused: %s\n", audit.Printable(r.Why))
		} else {
			fmt.Fprintf(&b, "          refused without --allow %s: %s\n", r.Name, audit.Printable(r.Why))
		}
	}
	if c.Note != "" {
		fmt.Fprintf(&b, "          look at it: %s\n", c.Note)
	}
	return b.String()
}

// versions says what the text of a file doesn't.
func versions(c *sandbox.Change) string {
	var parts []string
	was, is := c.Old, c.New
	switch {
	case is == nil:
		is = was
	case was != nil && was.Type != is.Type:
		parts = append(parts, "was a "+was.Type)
	case was != nil && was.Permissions != is.Permissions:
		parts = append(parts, was.Permissions+" to "+is.Permissions)
	}
	if is.Type != "file" {
		parts = append(parts, is.Type)
	} else if was == nil && is.Permissions != "0644" && is.Permissions != "0600" {
		parts = append(parts, is.Permissions)
	}
	if is.Target != "" {
		parts = append(parts, "to "+audit.Printable(is.Target))
	}
	if is.Type == "file" && c.Kind != sandbox.ChangeMode {
		parts = append(parts, progressbar.Bytes(is.Size))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// shownText is a difference without characters that a terminal acts on.
func shownText(text []byte) string {
	var b strings.Builder
	for line := range bytes.Lines(text) {
		for i, part := range strings.Split(strings.TrimSuffix(string(line), "\n"), "\t") {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(audit.Printable(part))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// maxJSONText bounds the differences in one output, in bytes, since it is built in memory. Further ones are left out.
const maxJSONText = 64 << 20

// jsonChange is a change with its text.
type jsonChange struct {
	*sandbox.Change
	Diff string `json:"diff,omitempty"`
}

func diffJSON(ctx context.Context, ui *ui, all []*sandbox.ChangedDirectory, chosen [][]*sandbox.Change, list bool) error {
	type directory struct {
		Host    string       `json:"host"`
		Guest   string       `json:"guest"`
		Changes []jsonChange `json:"changes"`
		Omitted int64        `json:"omitted,omitempty"`
	}
	out, room := make([]directory, 0, len(all)), maxJSONText
	for i, d := range all {
		one := directory{Host: d.Host, Guest: d.Guest, Changes: make([]jsonChange, 0, len(chosen[i])), Omitted: d.Omitted}
		for _, c := range chosen[i] {
			j := jsonChange{Change: c}
			if !list && room > 0 {
				text, err := difference(ctx, ui, d, c)
				if err != nil {
					return err
				}
				if room -= len(text); room > 0 {
					j.Diff = string(text)
				}
			}
			one.Changes = append(one.Changes, j)
		}
		out = append(out, one)
	}
	return ui.json(out)
}
