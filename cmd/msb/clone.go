package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
)

func newCloneCommand(ui *ui) *cobra.Command {
	var o sandbox.CloneOptions
	c := &cobra.Command{
		Use:   "clone [flags] NAME|SNAPSHOT NEW",
		Short: "Make a sandbox from a copy of another's disk, or of a snapshot's",
		Long: `Makes a sandbox that has the disk and the settings of another one, or of a snapshot,
and an identity of its own: certificate authority, placeholders, host name, MAC address,
machine-id, SSH host keys. Its published ports get free ports of this machine, and it
writes records to no file but its own. msb start starts it. Where a sandbox and a
snapshot have the same name, write sandbox:NAME or snapshot:NAME.`,
		Example: `  msb clone web other && msb start other
  msb clone snapshot:web-1 again
  msb clone --policy policy.toml imported worker`,
		Args: named(cobra.ExactArgs(2), "name a sandbox or a snapshot, and the sandbox to make"),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				clone, from, err := cloneFrom(home, args[0])
				if err != nil {
					return err
				}
				if err := clone(ctx, from, args[1], o); err != nil {
					return err
				}
				return ui.print(args[1] + "\n")
			})
		},
	}
	c.Flags().StringVar(&o.PolicyFile, "policy", "", "give the clone this policy `file` in place of the parent's")
	return c
}

// cloneFrom tells a sandbox from a snapshot.
func cloneFrom(home *sandbox.Home, word string) (clone func(context.Context, string, string, sandbox.CloneOptions) error, name string, err error) {
	if name, ok := strings.CutPrefix(word, "sandbox:"); ok {
		return home.Clone, name, nil
	}
	if name, ok := strings.CutPrefix(word, "snapshot:"); ok {
		return home.Snapshots().Clone, name, nil
	}
	_, missing := home.Inspect(word)
	switch isSnapshot := home.Snapshots().Has(word); {
	case isSnapshot && missing == nil:
		return nil, "", fmt.Errorf("there are a sandbox and a snapshot %s: write sandbox:%s or snapshot:%s", word, word, word)
	case isSnapshot:
		return home.Snapshots().Clone, word, nil
	}
	return home.Clone, word, nil
}
