package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/image/progressbar"
)

func newImageSave(ui *ui) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "save [flags] IMAGE...",
		Short: "Write images of the cache to an archive that docker load and msb image load read",
		Long: `Writes images to standard output or a file, as docker save does. The cache keeps the
disk that was made of an image, and not its layers: they are read again from where the
image came from, its registry for most, by the digest that is in the cache. What came
by msb image load can't be saved unless its registry has it; what came in docker's format,
and what msb commit made, can't be saved at all: msb snapshot export writes a sandbox to a file.`,
		Example: `  msb image save -o alpine.tar alpine:3.20
  msb image save alpine:3.20 | docker load`,
		Args: named(cobra.MinimumNArgs(1), "name the image"),
		RunE: func(c *cobra.Command, refs []string) error {
			if output == "" && isTerminal(os.Stdout) {
				return &usageError{err: errors.New("standard output is a terminal: name a file with -o FILE, or write msb image save IMAGE > FILE"), help: "msb image save --help"}
			}
			store, err := openStore()
			if err != nil {
				return err
			}
			return untilSignalled(c.Context(), func(ctx context.Context) error {
				save := func(w io.Writer) error {
					return store.Save(ctx, w, refs, image.SaveOptions{Progress: progressbar.New(os.Stderr, progressMode(false))})
				}
				if output == "" {
					return save(ui.out)
				}
				return writeStream(output, save)
			})
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "write to this `file` in place of standard output")
	return c
}

// writeStream puts a file in place once all of it is written. A pipe or device is written to directly.
func writeStream(path string, write func(io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := renameio.NewPendingFile(path, renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }() // of what is not in place
	if err := write(f); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
