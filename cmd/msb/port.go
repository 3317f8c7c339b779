package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
)

// parsePorts reads -p flags.
func parsePorts(flags []string) ([]sandbox.Port, error) {
	ports := make([]sandbox.Port, 0, len(flags))
	for _, f := range flags {
		p, err := sandbox.ParsePort(f)
		if err != nil {
			return nil, fmt.Errorf("-p: %w (for a policy file use --policy FILE)", err)
		}
		ports = append(ports, p)
	}
	return ports, nil
}

func newPortCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "port NAME",
		Short: "Print the ports of this machine that lead into a sandbox",
		Long: `Prints a line for each port that -p published: the guest's, and where this machine listens.
The sandbox must run.`,
		Example: `  msb run -d --name web -p 8080:80 IMAGE
  msb port web                   # 80/tcp -> 127.0.0.1:8080`,
		Args: named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(_ *cobra.Command, args []string) error {
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			s, err := home.Inspect(args[0])
			if err != nil {
				return err
			}
			if s.Info == nil {
				return sandbox.Fail(fmt.Errorf("%w: %s; start it with msb start %s", sandbox.ErrNotRunning, args[0], args[0]))
			}
			var lines strings.Builder
			for _, p := range s.Info.Ports {
				for _, a := range p.Addresses() {
					fmt.Fprintf(&lines, "%d/tcp -> %s\n", p.Guest, netip.AddrPortFrom(a, p.Host))
				}
			}
			return ui.print(lines.String())
		},
	}
}
