package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/sandbox"
)

func newCommitCommand(ui *ui) *cobra.Command {
	var quiet bool
	c := &cobra.Command{
		Use:   "commit [flags] NAME IMAGE",
		Short: "Make an image of what a sandbox has as its root",
		Long: `Makes the root of the sandbox NAME an image of the cache, which msb run IMAGE starts from, and
prints its digest. The sandbox may run. Volumes, directories of this machine, caches and
variables are left out, and what tells machines apart. docs/snapshots.md says more.`,
		Example: `  msb commit build tools:1
  msb run tools:1 -- make`,
		Args: named(cobra.ExactArgs(2), "name the sandbox and the image, as in msb commit build tools:1"),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				img, err := home.Snapshots().Commit(ctx, args[0], args[1], sandbox.StartOptions{Progress: progressbar.New(os.Stderr, progressMode(quiet))})
				if err != nil {
					return err
				}
				return ui.print(img.Digest + "\n")
			})
		},
	}
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing but the digest and errors")
	return c
}
