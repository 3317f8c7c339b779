package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/image/progressbar"
)

func newImageLoad(ui *ui) *cobra.Command {
	var input string
	var quiet bool
	c := &cobra.Command{
		Use:   "load [flags]",
		Short: "Bring the images of an archive into the cache, under their names",
		Long: `Reads an archive that docker save wrote, or a tar of an OCI image layout, plain or
compressed, from standard input or a file. The names that the archive gives its images
mean what was loaded until they are pulled again. docs/images.md has the bounds.`,
		Example: `  docker save alpine:3.20 | msb image load
  msb image load -i images.tar.gz`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if input == "" && isTerminal(os.Stdin) {
				return &usageError{err: errors.New("standard input is a terminal: name the archive with -i FILE, or write docker save IMAGE | msb image load"), help: "msb image load --help"}
			}
			store, err := openStore()
			if err != nil {
				return err
			}
			return untilSignalled(c.Context(), func(ctx context.Context) error {
				return loadImages(ctx, ui, store, input, progressbar.New(os.Stderr, progressMode(quiet)))
			})
		},
	}
	c.Flags().StringVarP(&input, "input", "i", "", "read this `file` in place of standard input")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing but the names and errors")
	return c
}

func loadImages(ctx context.Context, ui *ui, store *image.Store, input string, p image.Progress) error {
	from := io.Reader(os.Stdin)
	if input != "" {
		f, err := os.Open(input)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // it was only read
		from = f
	}
	all, err := store.Load(ctx, untilDone(ctx, from), image.LoadOptions{Progress: p})
	for i := range all {
		err = errors.Join(err, ui.print("Loaded image: "+all[i].Ref+"\n"))
	}
	return err
}
