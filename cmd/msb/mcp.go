package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/mcp"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

func newMCPCommand() *cobra.Command {
	var o mcp.Options
	var policy, memory, disk string
	c := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "Let an agent use sandboxes: an MCP server on standard input and output",
		Long: `Serves the Model Context Protocol on standard input and output, for a client such as Claude Code.
Its tools make sandboxes, run programs in them and read and write their files. Whatever the client asks
for, a sandbox may do at most what --policy allows; without it there is no network at all. Images come
from the cache unless --image or the policy names them. Sandboxes stay until they are removed.`,
		Example: `  claude mcp add --transport stdio msb -- msb mcp
  claude mcp add --transport stdio msb -- msb mcp --policy floor.toml --image python:3.12`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			for flag, size := range map[string]struct {
				text string
				to   *int64
			}{"--max-memory": {memory, &o.Memory}, "--max-disk": {disk, &o.Disk}} {
				if *size.to, err = policies.ParseSize(size.text); err != nil || *size.to < smallestSize {
					return &usageError{err: fmt.Errorf("%s %q: write a size such as 2G", flag, size.text), help: "msb mcp --help"}
				}
			}
			if o.Sandboxes < 1 || o.CPUs < 1 {
				return &usageError{err: fmt.Errorf("--max-sandboxes %d, --max-cpus %d: give each at least 1", o.Sandboxes, o.CPUs), help: "msb mcp --help"}
			}
			if policy != "" {
				if o.Floor, err = loadPolicy(policy); err != nil {
					return err
				}
			}
			if o.Home, err = sandbox.OpenHome(""); err != nil {
				return err
			}
			return mcp.Serve(c.Context(), o, version, os.Stdin, os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		},
	}
	c.Flags().StringVarP(&policy, "policy", "p", "", "the operator's policy `file`, which no call loosens; approve what it takes with msb policy trust")
	c.Flags().StringArrayVar(&o.Images, "image", nil, "let this image be pulled, beside the policy's own (`REF`, repeatable)")
	c.Flags().IntVar(&o.Sandboxes, "max-sandboxes", mcp.DefaultSandboxes, "how many sandboxes there may be at once")
	c.Flags().IntVar(&o.CPUs, "max-cpus", mcp.DefaultCPUs, "the most CPUs of one sandbox")
	c.Flags().StringVar(&memory, "max-memory", policies.FormatSize(mcp.DefaultMemory), "the most memory of one sandbox (`SIZE`)")
	c.Flags().StringVar(&disk, "max-disk", policies.FormatSize(mcp.DefaultDisk), "the disk of a sandbox that stays (`SIZE`, sparse)")
	c.Flags().StringVar(&o.Backend, "vm", "auto", "`backend`: auto, krun or qemu")
	return c
}
