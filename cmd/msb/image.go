package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/sandbox"
)

func newImageCommand(ui *ui) *cobra.Command {
	c := &cobra.Command{
		Use:   "image",
		Short: "Fetch, list, look at and remove images",
		Long:  "Images are kept as read-only disks under $MSB_HOME/images, shared by every sandbox; docs/images.md has the details.",
		Example: `  msb image pull alpine:3.20
  msb image ls
  msb image rm alpine:3.20 && msb image prune`,
	}
	c.AddCommand(newImagePull(ui), newImageList(ui), newImageRemove(ui), newImagePrune(ui), newImageInspect(ui), newImageHistory(ui), newImageLoad(ui), newImageSave(ui))
	return onlyGroups(c)
}

func openStore() (*image.Store, error) {
	home, err := sandbox.OpenHome("")
	if err != nil {
		return nil, err
	}
	return sandbox.Store(home)
}

// openNeeded opens the cache and returns the images that sandboxes with a name need.
func openNeeded() (*image.Store, []string, error) {
	home, err := sandbox.OpenHome("")
	if err != nil {
		return nil, nil, err
	}
	needed, err := home.NeededImages()
	if err != nil {
		return nil, nil, err
	}
	store, err := sandbox.Store(home)
	return store, needed, err
}

func newImagePull(ui *ui) *cobra.Command {
	var quiet bool
	c := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Fetch images, so that --pull never finds them",
		Example: `  msb image pull alpine:3.20
  msb image pull docker-archive:image.tar`,
		Args: named(cobra.MinimumNArgs(1), "name the image"),
		RunE: func(c *cobra.Command, refs []string) error {
			ui.quiet = quiet
			store, err := openStore()
			if err != nil {
				return err
			}
			for _, ref := range refs {
				var img *image.Image
				err := untilSignalled(c.Context(), func(ctx context.Context) (err error) {
					defer func() {
						if err != nil && ctx.Err() != nil {
							ui.note("interrupted before image %s was there; nothing of it stays", ref)
						}
					}()
					img, err = store.Resolve(ctx, ref, image.Options{
						Pull: image.PullAlways, Progress: progressbar.New(os.Stderr, progressMode(quiet)),
					})
					return err
				})
				if err != nil {
					return err
				}
				if err := ui.print(img.Digest + "\n"); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the digest alone")
	return c
}

// imageRow is what `msb image ls --json` prints of one image.
type imageRow struct {
	Ref       string    `json:"ref"`
	Digest    string    `json:"digest"`
	Platform  string    `json:"platform"`
	SizeBytes int64     `json:"size_bytes"`
	Created   time.Time `json:"created"`
}

func newImageList(ui *ui) *cobra.Command {
	var flags listFlags
	c := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "List the images in the cache",
		Example: `  msb image ls
  msb image ls --format '{{.ref}} {{.size_bytes}}'`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			store, err := openStore()
			if err != nil {
				return err
			}
			list, err := store.List()
			if err != nil {
				return err
			}
			return printImages(ui, c, list, &flags)
		},
	}
	flags.register(c)
	sakeOfDocker(c, "all", "a", listsAll)
	return c
}

func printImages(ui *ui, c *cobra.Command, list []image.Image, flags *listFlags) error {
	const digestShown = len("sha256:") + 12
	all := make([]imageRow, 0, len(list))
	for _, img := range list {
		all = append(all, imageRow{img.Ref, img.Digest, img.Platform.String(), img.SizeBytes, img.Created})
	}
	return printList(ui, c, flags, all, func(r *imageRow) string { return cmp.Or(r.Ref, r.Digest) }, func(all []imageRow) [][]string {
		rows := append(make([][]string, 0, 1+len(all)), []string{"IMAGE", "DIGEST", "PLATFORM", "SIZE"})
		for _, r := range all {
			rows = append(rows, []string{cmp.Or(image.ShortName(r.Ref), "<none>"), r.Digest[:min(digestShown, len(r.Digest))], r.Platform, progressbar.Bytes(r.SizeBytes)})
		}
		return rows
	})
}

func newImageRemove(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:     "rm IMAGE...",
		Aliases: []string{"remove"},
		Short:   "Forget images, and delete their disks unless another name or a sandbox needs them",
		Example: `  msb image rm alpine:3.20`,
		Args:    named(cobra.MinimumNArgs(1), "name the image"),
		RunE: func(_ *cobra.Command, refs []string) error {
			store, needed, err := openNeeded()
			if err != nil {
				return err
			}
			for _, ref := range refs {
				if err := store.Remove(ref, needed...); errors.Is(err, image.ErrNotCached) {
					return fmt.Errorf("%w; %s`msb image ls` lists those there are", err, didYouMean(ref, knownImages()))
				} else if err != nil {
					return err
				}
				ui.note("%s removed", ref)
			}
			return nil
		},
	}
}

func newImagePrune(ui *ui) *cobra.Command {
	var dry bool
	var flags listFlags
	c := &cobra.Command{
		Use:     "prune [flags]",
		Short:   "Remove the disks that no name and no sandbox needs, and list them with their size",
		Example: `  msb image prune --dry-run`,
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := flags.check(c); err != nil { // before anything is removed
				return err
			}
			return withHome(c, func(_ context.Context, home *sandbox.Home) error {
				pruned, err := sandbox.PruneImages(home, dry)
				if err != nil {
					return err
				}
				return printPruned(ui, c, &flags, pruned)
			})
		},
	}
	flags.register(c)
	c.Flags().BoolVar(&dry, "dry-run", false, "remove nothing")
	sakeOfDocker(c, "force", "f", asksNothing)
	return c
}
