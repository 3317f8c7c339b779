package main

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/sandbox"
)

const snapshotRemedy = "name the snapshot; `msb snapshot ls` lists those there are"

func newSnapshotCommand(ui *ui) *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Take, list, compare and restore snapshots of sandboxes' disks",
		Long: `Keeps disks of sandboxes with a name as they were, in chunks that snapshots share, and with
--memory their processes too, under $MSB_HOME/snapshots; docs/snapshots.md has the details.`,
		Example: `  msb snapshot create web                  # web-1
  msb stop web && msb snapshot restore web-1
  msb clone web-1 other`,
	}
	c.AddCommand(newSnapshotCreate(ui), newSnapshotList(ui), newSnapshotInspect(ui), newSnapshotRemove(ui), newSnapshotRestore(ui), newSnapshotDiff(ui), newSnapshotExport(ui), newSnapshotImport(ui))
	return onlyGroups(c)
}

func newSnapshotCreate(ui *ui) *cobra.Command {
	var labels []string
	var memory bool
	c := &cobra.Command{
		Use:   "create [flags] NAME [SNAPSHOT]",
		Short: "Take a snapshot of a sandbox's disk, which may be running",
		Long: `Takes a snapshot of the disk of a sandbox with a name, and of its settings. Without a
name for the snapshot it gets the sandbox's with a number. The disk of a sandbox that
runs is held still meanwhile: processes that write to it wait, at most for 20 s.

With --memory, the memory of a sandbox that runs is taken with the disk, of the same
instant: all of its processes, which stand still meanwhile, at most for a minute. msb start
lets them go on after msb snapshot restore. Only this sandbox can, on this machine, with
QEMU (--vm qemu): libkrun has no saved state. Directories of this machine, volumes and
caches are in no snapshot, so there is none of the memory of a sandbox that has them.`,
		Example: `  msb snapshot create web
  msb snapshot create --memory web busy
  msb snapshot create --label before=upgrade web clean`,
		Args: named(cobra.RangeArgs(1, 2), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			o := sandbox.SnapshotOptions{Memory: memory}
			if len(args) == 2 {
				o.Name = args[1]
			}
			var err error
			if o.Labels, err = parseLabels(labels); err != nil {
				return &usageError{err: err, help: c.CommandPath() + " --help"}
			}
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				s, err := home.Snapshots().Create(ctx, args[0], o)
				if err != nil {
					return err
				}
				return ui.print(s.Name + "\n")
			})
		},
	}
	c.Flags().BoolVar(&memory, "memory", false, "take the memory with the disk: all processes as they are")
	c.Flags().StringArrayVarP(&labels, "label", "l", nil, "give the snapshot a label `KEY=VALUE` (repeatable)")
	return c
}

func newSnapshotList(ui *ui) *cobra.Command {
	var flags listFlags
	c := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "List the snapshots",
		Example: `  msb snapshot ls
  msb snapshot ls --format '{{.name}} {{.data_bytes}}'`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			all, err := home.Snapshots().List()
			if err != nil {
				return err
			}
			return printList(ui, c, &flags, all, func(s *sandbox.Snapshot) string { return s.Name },
				func(all []sandbox.Snapshot) [][]string { return snapshotRows(all, time.Now()) })
		},
	}
	flags.register(c)
	return c
}

func snapshotRows(all []sandbox.Snapshot, now time.Time) [][]string {
	rows := append(make([][]string, 0, 1+len(all)), []string{"NAME", "SANDBOX", "TAKEN", "PARENT", "DATA", "MEMORY", "IMAGE"})
	for i := range all {
		s := &all[i]
		if s.Problem != "" {
			rows = append(rows, []string{s.Name, "damaged", audit.Printable(s.Problem)})
			continue
		}
		memory := "-"
		if s.Memory > 0 {
			memory = progressbar.Bytes(s.Memory)
		}
		rows = append(rows, []string{s.Name, audit.Printable(s.Sandbox), age(now.Sub(s.Created)) + " ago", audit.Printable(cmp.Or(s.Parent, "-")), progressbar.Bytes(s.Data), memory, audit.Printable(s.Image)})
	}
	return rows
}

func newSnapshotInspect(ui *ui) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "inspect [flags] SNAPSHOT",
		Short:   "Tell about a snapshot in JSON",
		Example: `  msb snapshot inspect web-1 | jq -r .digest`,
		Args:    named(cobra.ExactArgs(1), snapshotRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			s, err := home.Snapshots().Inspect(args[0])
			if err != nil {
				return err
			}
			return printOne(ui, c, format, s)
		},
	}
	oneFormat(c, &format)
	return c
}

func newSnapshotRemove(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:     "rm SNAPSHOT...",
		Aliases: []string{"remove"},
		Short:   "Remove snapshots, and what no other snapshot shares of them",
		Example: `  msb snapshot rm web-1 web-2`,
		Args:    named(cobra.MinimumNArgs(1), snapshotRemedy),
		RunE: func(_ *cobra.Command, args []string) error {
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			return forEach(args, func(name string) error {
				if err := home.Snapshots().Remove(name); err != nil {
					return err
				}
				return ui.print(name + "\n")
			})
		},
	}
}

func newSnapshotRestore(ui *ui) *cobra.Command {
	var diskAlone bool
	c := &cobra.Command{
		Use:   "restore [flags] SNAPSHOT [NAME]",
		Short: "Put a snapshot's disk in place of that of the sandbox that it was taken of",
		Long: `Puts the disk of a snapshot back into the sandbox that it was taken of, which must be
stopped; name it if it was renamed since. What is on its disk now is lost, and its jobs
go. Everything else of the sandbox stays as it is now: policy, variables, ports,
placeholders, certificate authority. msb clone makes another sandbox of a snapshot.

Of a snapshot with the memory, the next msb start goes on with the processes that the
snapshot has, once; later ones boot. Their connections are gone, and so is the output of
commands that ran. With --no-memory, or where something that the memory needs has changed,
the disk alone is used: as after a loss of power.`,
		Example: `  msb stop web && msb snapshot restore web-1 && msb start web
  msb snapshot restore --no-memory busy`,
		Args: named(cobra.RangeArgs(1, 2), snapshotRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				name := ""
				if len(args) == 2 {
					name = args[1]
				}
				s, err := home.Snapshots().Inspect(args[0])
				if err != nil {
					return err
				}
				if diskAlone || s.Memory == 0 {
					if err := home.Snapshots().RestoreDisk(ctx, args[0], name); err != nil {
						return err
					}
					ui.note("the disk is as it was in %s", args[0])
					return nil
				}
				if err := home.Snapshots().Restore(ctx, args[0], name); err != nil {
					return err
				}
				ui.note("the disk is as it was in %s, and the next start goes on with its memory", args[0])
				return nil
			})
		},
	}
	c.Flags().BoolVar(&diskAlone, "no-memory", false, "of a snapshot with the memory, restore the disk alone")
	return c
}

func newSnapshotDiff(ui *ui) *cobra.Command {
	var flags listFlags
	c := &cobra.Command{
		Use:   "diff [flags] SNAPSHOT SNAPSHOT",
		Short: "List the parts in which the disks of two snapshots differ",
		Long: `Lists ranges of bytes of the disk, to within a MiB. Which files lie there is not told:
compare those in clones of the two.`,
		Example: `  msb snapshot diff web-1 web-2`,
		Args:    named(cobra.ExactArgs(2), "name two snapshots; `msb snapshot ls` lists those there are"),
		RunE: func(c *cobra.Command, args []string) error {
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			all, err := home.Snapshots().Diff(args[0], args[1])
			if err != nil {
				return err
			}
			at := func(r *sandbox.DiskRange) string { return strconv.FormatInt(r.Start, 10) }
			return printList(ui, c, &flags, all, at, func(all []sandbox.DiskRange) [][]string {
				rows, sum := append(make([][]string, 0, 2+len(all)), []string{"START", "SIZE"}), int64(0)
				for i := range all {
					rows, sum = append(rows, []string{at(&all[i]), progressbar.Bytes(all[i].Bytes)}), sum+all[i].Bytes
				}
				return append(rows, []string{"total", progressbar.Bytes(sum)})
			})
		},
	}
	flags.register(c)
	return c
}
