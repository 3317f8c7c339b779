package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
)

func newSnapshotExport(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "export SNAPSHOT FILE",
		Short: "Write a snapshot to an archive for another machine",
		Long: `Writes the disk of a snapshot and those of its settings that take nothing from this
machine to one zstd archive; FILE - is standard output. Policy, directories, ports and
files of records are not in it. Variables of -e are, and all that is on the disk.`,
		Example: `  msb snapshot export web-1 web-1.snapshot
  msb snapshot export web-1 - | ssh other msb snapshot import -`,
		Args: named(cobra.ExactArgs(2), "name the snapshot, and the file to write; `msb snapshot ls` lists the snapshots there are"),
		RunE: func(c *cobra.Command, args []string) error {
			if args[1] == "-" && isTerminal(os.Stdout) {
				return &usageError{err: errors.New("standard output is a terminal: name a file"), help: c.CommandPath() + " --help"}
			}
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				export := func(w io.Writer) error { return home.Snapshots().Export(ctx, args[0], w) }
				if args[1] == "-" {
					return export(ui.out)
				}
				return writeStream(args[1], export)
			})
		},
	}
}

func newSnapshotImport(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE [SNAPSHOT]",
		Short: "Bring a snapshot in from an archive that msb snapshot export wrote",
		Long: `Reads an archive of msb snapshot export; FILE - is standard input. The snapshot has the
archive's name unless it is given one. msb clone makes sandboxes of it, whose policy
allows nothing without --policy. The image below the disk must be in the cache by then.`,
		Example: `  msb snapshot import web-1.snapshot
  msb image pull python:3.12 && msb clone web-1 web`,
		Args: named(cobra.RangeArgs(1, 2), "name the archive"),
		RunE: func(c *cobra.Command, args []string) error {
			name := ""
			if len(args) == 2 {
				name = args[1]
			}
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				in := os.Stdin
				if args[0] != "-" {
					f, err := os.Open(args[0])
					if err != nil {
						return err
					}
					defer func() { _ = f.Close() }() // it was only read
					in = f
				}
				s, err := home.Snapshots().Import(ctx, untilDone(ctx, in), name)
				if err != nil {
					return err
				}
				return ui.print(s.Name + "\n")
			})
		},
	}
}
