package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
)

// nameOf finds the name among two arguments that may be swapped.
func nameOf(args []string) string {
	if args[0] == "on" || args[0] == "off" {
		return args[1]
	}
	return args[0]
}

func newCaptureCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "capture NAME on|off",
		Short: "Switch the capture of a sandbox that runs",
		Long: `Switches the capture of a sandbox that was created with --pcap FILE. Each part
is a capture of its own; the part before is renamed to FILE.1.`,
		Example: `  msb create --pcap link.pcapng --pcap-off agent
  msb start agent
  msb capture agent on`,
		Args: named(cobra.ExactArgs(2), "name the sandbox, and on or off"),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if args[1] != "on" && args[1] != "off" {
				return &usageError{err: fmt.Errorf("%q: it must be on or off, behind the name, as in msb capture %s on", args[1], nameOf(args)), help: "msb capture --help"}
			}
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			sb, err := home.Connect(c.Context(), args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, sb.Close()) }()
			return sb.SwitchCapture(args[1] == "on")
		},
	}
}
