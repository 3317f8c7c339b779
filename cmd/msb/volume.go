package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

const volumeRemedy = "name the volume; `msb volume ls` lists those there are"

func newVolumeCommand(ui *ui) *cobra.Command {
	c := &cobra.Command{
		Use:   "volume",
		Short: "Make and look after volumes: disks that stay when sandboxes go",
		Long: `Volumes are disks with a name that stay when sandboxes go. msb run -v NAME:GUEST has one at
GUEST, for one sandbox that writes or several that read (NAME:GUEST:ro). docs/volumes.md
says more.`,
		Example: `  msb volume create --size 20G data
  msb run -v data:/data -- sh -c 'date > /data/now'
  msb volume cp data:/now .`,
	}
	c.AddCommand(newVolumeCreateCommand(ui), newVolumeListCommand(ui), newVolumeInspectCommand(ui), newVolumeRemoveCommand(ui), newVolumePruneCommand(ui), newVolumeCopyCommand(ui))
	return onlyGroups(c)
}

func newVolumeCreateCommand(ui *ui) *cobra.Command {
	var size string
	c := &cobra.Command{
		Use:     "create [flags] NAME...",
		Short:   "Make empty volumes",
		Example: `  msb volume create --size 20G data`,
		Args:    named(cobra.MinimumNArgs(1), "name the volume, as in msb volume create data"),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := policies.ParseSize(size)
			if err != nil {
				return &usageError{err: fmt.Errorf("--size: %w", err), help: "msb volume create --help"}
			}
			return withHome(c, func(_ context.Context, home *sandbox.Home) error {
				return eachName(ui, args, func(name string) error { return home.Volumes().Create(name, n) })
			})
		},
	}
	c.Flags().StringVar(&size, "size", policies.FormatSize(sandbox.DefaultDisk), "`size` of the file system, such as 20G; it takes on this machine what is written")
	return c
}

func newVolumeListCommand(ui *ui) *cobra.Command {
	var flags listFlags
	c := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "List volumes",
		Example: `  msb volume ls --format "{{.name}}: {{.used_bytes}}"`,
		Args:    named(cobra.NoArgs, "msb volume ls takes no names; msb volume inspect NAME shows one"),
		RunE: func(c *cobra.Command, _ []string) error {
			return withHome(c, func(_ context.Context, home *sandbox.Home) error {
				all, err := home.Volumes().List()
				if err != nil {
					return err
				}
				return printVolumes(ui, c, &flags, all)
			})
		},
	}
	flags.register(c)
	return c
}

func printVolumes(ui *ui, c *cobra.Command, flags *listFlags, all []sandbox.VolumeStatus) error {
	return printList(ui, c, flags, all, func(v *sandbox.VolumeStatus) string { return v.Name }, func(all []sandbox.VolumeStatus) [][]string {
		rows := append(make([][]string, 0, 1+len(all)), []string{"NAME", "SIZE", "USED", "IN USE", "SANDBOXES"})
		for i := range all {
			v := &all[i]
			if v.Problem != "" {
				rows = append(rows, []string{v.Name, "damaged", audit.Printable(v.Problem)})
				continue
			}
			rows = append(rows, []string{v.Name, policies.FormatSize(v.Size), progressbar.Bytes(v.Used), strconv.FormatBool(v.Busy), cmp.Or(strings.Join(v.Sandboxes, ", "), "-")})
		}
		return rows
	})
}

func newVolumeInspectCommand(ui *ui) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "inspect [flags] NAME",
		Short:   "Tell about a volume in JSON: size, use, sandboxes, file",
		Example: `  msb volume inspect data | jq .sandboxes`,
		Args:    named(cobra.ExactArgs(1), volumeRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(_ context.Context, home *sandbox.Home) error {
				v, err := home.Volumes().Inspect(args[0])
				if err != nil {
					return err
				}
				return printOne(ui, c, format, v)
			})
		},
	}
	oneFormat(c, &format)
	return c
}

func newVolumeRemoveCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove volumes and all that they hold",
		Example: `  msb volume rm data`,
		Args:    named(cobra.MinimumNArgs(1), volumeRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(_ context.Context, home *sandbox.Home) error {
				return eachName(ui, args, home.Volumes().Remove)
			})
		},
	}
}

func newVolumePruneCommand(ui *ui) *cobra.Command {
	var flags listFlags
	var dry bool
	c := &cobra.Command{
		Use:     "prune [flags]",
		Short:   "Remove the volumes that no sandbox is made with, and all that they hold",
		Example: `  msb volume prune --dry-run`,
		Args:    named(cobra.NoArgs, "msb volume prune takes no arguments; msb volume rm NAME removes one"),
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := flags.check(c); err != nil { // before anything is removed
				return err
			}
			return withHome(c, func(_ context.Context, home *sandbox.Home) error {
				removed, err := home.Volumes().Prune(dry)
				return errors.Join(err, printVolumes(ui, c, &flags, removed))
			})
		},
	}
	flags.register(c)
	c.Flags().BoolVar(&dry, "dry-run", false, "remove nothing")
	sakeOfDocker(c, "force", "f", asksNothing)
	return c
}

func newVolumeCopyCommand(ui *ui) *cobra.Command {
	var o sandbox.CopyOptions
	c := &cobra.Command{
		Use:   "cp [flags] SRC DEST",
		Short: "Copy files between this machine and a volume",
		Long: `Copies as msb cp does, with a volume in place of a sandbox: VOLUME:PATH is below the volume's
top. A sandbox without a network does it, which has the volume meanwhile.`,
		Example: `  msb volume cp ./dump.sql data:/
  msb volume cp data:/. backup
  msb volume cp data:/ - > data.tar`,
		Args: named(cobra.ExactArgs(2), "msb volume cp takes a source and a destination, one of them VOLUME:PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			err := untilSignalled(c.Context(), func(ctx context.Context) error { return copyVolume(ctx, ui, args[0], args[1], o) })
			var wrong *copyUsage
			if errors.As(err, &wrong) {
				return &usageError{err: err, help: "msb volume cp --help"}
			}
			return err
		},
	}
	c.Flags().BoolVarP(&o.Follow, "follow-link", "L", false, "copy what SRC leads to if it is a symbolic link")
	c.Flags().BoolVarP(&o.KeepOwner, "archive", "a", false, "keep the owners' numbers in the volume")
	c.Flags().BoolVarP(&ui.quiet, "quiet", "q", false, "print errors alone: neither what was left out nor that a sandbox is started for it")
	return c
}

func copyVolume(ctx context.Context, ui *ui, src, dst string, o sandbox.CopyOptions) error {
	from, to, err := parsePlaces(src, dst)
	if err != nil {
		return err
	}
	reads := from.name != ""
	if reads {
		from.path = inVolume(from.path)
	} else {
		to.path = inVolume(to.path)
	}
	return copyBetween(ctx, ui, from, to, o, func(ctx context.Context, home *sandbox.Home, name string) (*sandbox.Sandbox, error) {
		if _, err := home.Volumes().Inspect(name); err == nil {
			ui.note("a sandbox without network is started for this")
		}
		sb, err := home.Volumes().Open(ctx, name, reads, sandbox.StartOptions{})
		if err != nil {
			return nil, err
		}
		p := path.Clean(from.guestPath() + to.guestPath())
		follow := o.Follow || p != from.path
		if !reads {
			st, err := sb.Files().Stat(ctx, p, true)
			follow = err == nil && st.IsDir()
		}
		if err := withinVolume(ctx, sb, p, follow); err != nil {
			return nil, errors.Join(err, sb.Close())
		}
		return sb, nil
	})
}

// withinVolume refuses a path that a link in the volume leads out of it, to the files of the sandbox that copies. follow tells
// whether a link at the path itself is followed.
func withinVolume(ctx context.Context, sb *sandbox.Sandbox, p string, follow bool) error {
	if !follow {
		p = path.Dir(p)
	}
	var out strings.Builder
	status, err := sb.Exec(ctx, sandbox.ExecOptions{Argv: []string{"readlink", "-f", "--", p}, Stdout: &out})
	if err != nil || status.Code != 0 { // the copy reports one that isn't there
		return err
	}
	if real := strings.TrimSuffix(out.String(), "\n"); real != sandbox.VolumeRoot && !strings.HasPrefix(real, sandbox.VolumeRoot+"/") {
		return fmt.Errorf("%w: a link in the volume leads out of it, to %.200q; name a file of the volume itself", sandbox.ErrCopy, real)
	}
	return nil
}

// inVolume is the path in the guest of Volumes.Open for a path of the volume.
func inVolume(p string) string {
	switch {
	case p == "/":
		return sandbox.VolumeRoot + "/."
	case strings.HasSuffix(p, "/"):
		return path.Join(sandbox.VolumeRoot, p) + "/"
	case strings.HasSuffix(p, "/."):
		return path.Join(sandbox.VolumeRoot, p) + "/."
	}
	return path.Join(sandbox.VolumeRoot, p)
}
