package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/mcp"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// lastWordWait is how long a failed server waits for its client to read the reason from standard error.
const lastWordWait = time.Second

func newMCPCommand(ui *ui) *cobra.Command {
	var f mcpFlags
	c := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "Let an agent use sandboxes: an MCP server on standard input and output",
		Long: `Serves the Model Context Protocol on standard input and output, for a client such as Claude Code.
Its tools make sandboxes, run programs in them and read and write their files. Whatever the client asks
for, a sandbox may do at most what --policy allows; without it there is no network at all. Images come
from the cache unless --image or the policy names them. Sandboxes stay until they are removed; one that
is not used is stopped meanwhile.`,
		Example: `  msb mcp install claude-code
  msb mcp install cursor --policy floor.toml --image python:3.12
  msb mcp install claude-code -v ~/project:/work:rw
  claude mcp add --transport stdio msb -- msb mcp --policy floor.toml`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return noCommand(c, args[0])
		},
		RunE: func(c *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			if isTerminal(os.Stdin) {
				fmt.Fprintln(os.Stderr, "This is a server for an agent's client, which starts it by itself: try `msb mcp install --help`. Ctrl+C ends it.")
			}
			signal.Ignore(syscall.SIGPIPE) // a client that closes standard error alone has its server still
			err = serveMCP(c.Context(), &o)
			if err != nil {
				time.AfterFunc(lastWordWait, func() { os.Exit(exitOf(err)) })
			}
			return err
		},
	}
	f.add(c)
	c.SuggestionsMinimumDistance = 2
	c.AddCommand(newMCPInstall(ui), newMCPUninstall(ui), newMCPWrap(ui))
	return c
}

// serveMCP serves one client and logs to standard error and to a file.
func serveMCP(ctx context.Context, o *mcp.Options) error {
	log := mcp.NewLog(os.Stderr)
	file, err := mcp.OpenLogFile(o.Home)
	if err != nil { // a client is served all the same
		slog.New(slog.NewTextHandler(log, nil)).Warn(err.Error())
		return mcp.Serve(ctx, *o, version, os.Stdin, os.Stdout, slog.New(slog.NewTextHandler(log, nil)))
	}
	defer func() { _ = file.Close() }() // each line is written already
	life := slog.New(slog.NewTextHandler(file, nil))
	life.Info("begins", "version", version)
	err = mcp.Serve(ctx, *o, version, os.Stdin, os.Stdout, slog.New(slog.NewTextHandler(io.MultiWriter(log, file), nil)))
	life.Info("ends", "err", err)
	return err
}

// mcpFlags are the flags of a server, which msb mcp install writes into a client's configuration.
type mcpFlags struct {
	o                    mcp.Options
	policy, memory, disk string
	volumes              []string
	given                func(flag string) bool
}

func (f *mcpFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.policy, "policy", "", "the operator's policy `file`, which no call loosens; approve what it takes with msb policy trust")
	flags.StringArrayVar(&f.o.Images, "image", nil, "let this image be pulled, beside the policy's own (`REF`, repeatable)")
	flags.IntVar(&f.o.Sandboxes, "max-sandboxes", mcp.DefaultSandboxes, "how many sandboxes there may be at once")
	flags.IntVar(&f.o.CPUs, "max-cpus", mcp.DefaultCPUs, "the most CPUs of one sandbox")
	flags.StringVar(&f.memory, "max-memory", policies.FormatSize(mcp.DefaultMemory), "the most memory of one sandbox (`SIZE`)")
	flags.StringVar(&f.disk, "max-disk", policies.FormatSize(mcp.DefaultDisk), "the disk of a sandbox that stays (`SIZE`, sparse)")
	flags.StringArrayVarP(&f.volumes, "volume", "v", nil, "let every sandbox see a directory of this machine: `HOST:GUEST[:ro|rw]`, read-only unless rw (repeatable)")
	flags.StringArrayVar(&f.o.Hide, "hide", nil, "hide files from the guest whose name, or path in a -v directory, matches this `pattern` (repeatable)")
	flags.BoolVar(&f.o.HideCredentials, "hide-credentials", true, "hide what looks like credentials in the -v directories")
	f.given = flags.Changed
	flags.DurationVar(&f.o.Lifetime, "lifetime", 0, "stop a sandbox this `duration` after its start, whatever it does; 0 for never")
	flags.DurationVar(&f.o.IdleStop, "idle-stop", mcp.DefaultIdleStop, "stop a sandbox that had no call and no job for this `duration`; 0 for never")
	flags.StringSliceVar(&f.o.Tools, "tools", nil, "more tools, by toolsets: "+strings.Join(mcp.Toolsets(), ", ")+" or "+mcp.AllTools+" (`SETS`, with commas); or another server's tools instead: "+strings.Join(mcp.Lists(), ", "))
	flags.StringVar(&f.o.Backend, "vm", "auto", "`backend`: auto, krun or qemu")
}

// noBounds refuses flags that lift a bound of the policy's [agent].
func (f *mcpFlags) noBounds(o *mcp.Options, a *policies.Agent) error {
	switch {
	case a.IdleStop > 0 && f.given("idle-stop") && o.IdleStop == 0:
		return mcp.NoBound("idle_stop", a.IdleStop)
	case a.Lifetime > 0 && f.given("lifetime") && o.Lifetime == 0:
		return mcp.NoBound("lifetime", a.Lifetime)
	}
	return nil
}

// ungiven drops the defaults of flags that were not given if the policy's [agent] sets the same bound.
func (f *mcpFlags) ungiven(o *mcp.Options, a *policies.Agent) {
	if a.Sandboxes > 0 && !f.given("max-sandboxes") {
		o.Sandboxes = 0
	}
	if a.CPUs > 0 && !f.given("max-cpus") {
		o.CPUs = 0
	}
	if a.Memory > 0 && !f.given("max-memory") {
		o.Memory = 0
	}
	if a.Disk > 0 && !f.given("max-disk") {
		o.Disk = 0
	}
	if a.IdleStop > 0 && !f.given("idle-stop") {
		o.IdleStop = 0
	}
}

func (f *mcpFlags) options() (mcp.Options, error) {
	o := f.o
	var err error
	for flag, size := range map[string]struct {
		text string
		to   *int64
	}{"--max-memory": {f.memory, &o.Memory}, "--max-disk": {f.disk, &o.Disk}} {
		if *size.to, err = policies.ParseSize(size.text); err != nil || *size.to < smallestSize {
			return o, &usageError{err: fmt.Errorf("%s %q: write a size such as 2G", flag, size.text), help: "msb mcp --help"}
		}
	}
	if o.Sandboxes < 1 || o.CPUs < 1 {
		return o, &usageError{err: fmt.Errorf("--max-sandboxes %d, --max-cpus %d: give each at least 1", o.Sandboxes, o.CPUs), help: "msb mcp --help"}
	}
	if o.IdleStop < 0 || o.Lifetime < 0 {
		return o, &usageError{err: fmt.Errorf("--idle-stop %s, --lifetime %s: write a time such as 30m, or 0 for never", o.IdleStop, o.Lifetime), help: "msb mcp --help"}
	}
	if f.policy != "" {
		if o.Floor, err = sandbox.LoadPolicy(f.policy); err != nil {
			return o, err
		}
	}
	if o.Floor != nil && o.Floor.Agent != nil {
		if err := f.noBounds(&o, o.Floor.Agent); err != nil {
			return o, err
		}
		f.ungiven(&o, o.Floor.Agent)
	}
	if o.Directories, err = parseDirectories(f.volumes); err != nil {
		return o, &usageError{err: err, help: "msb mcp --help"}
	}
	o.Home, err = sandbox.OpenHome("")
	return o, err
}
