package main

import (
	"cmp"
	"context"
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
	c := &cobra.Command{
		Use:   "port NAME [PORT[/udp]]",
		Short: "Show and change the ports of this machine that lead into a sandbox",
		Long: `Prints a line for each port that is published: the guest's, and where this machine listens.
With PORT it prints this machine's addresses for that one alone, as docker does.
The sandbox must run; msb port ls shows those of one that doesn't, too.`,
		Example: `  msb run -d --name web -p 8080:80 IMAGE
  msb port web                   # 80/tcp -> 127.0.0.1:8080
  msb port web 80                # 127.0.0.1:8080
  msb port add web 9090:90       # while it runs, and from then on
  msb port rm web 9090:90`,
		Args: named(cobra.RangeArgs(1, 2), "name the sandbox, and no more than one port of it; `msb ls` lists those there are"),
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
			if len(args) == 2 {
				lines, err := hostsOf(s.Info.Ports, args[1])
				if err != nil {
					return fmt.Errorf("%w; `msb port %s` lists those that are", err, args[0])
				}
				return ui.print(lines)
			}
			var lines strings.Builder
			for _, p := range s.Info.Ports {
				for _, a := range p.Addresses() {
					fmt.Fprintf(&lines, "%s -> %s\n", guestPort(p), netip.AddrPortFrom(a, p.Host))
				}
			}
			return ui.print(lines.String())
		},
	}
	c.AddCommand(newPortListCommand(ui), newPortAddCommand(ui), newPortRemoveCommand(ui))
	return c
}

// hostsOf is a line for each address of this machine that leads to the guest's port, "80" or "80/udp".
func hostsOf(ports []sandbox.Port, guest string) (string, error) {
	if !strings.Contains(guest, "/") {
		guest += "/tcp"
	}
	var lines strings.Builder
	for _, p := range ports {
		if guestPort(p) != guest {
			continue
		}
		for _, a := range p.Addresses() {
			lines.WriteString(netip.AddrPortFrom(a, p.Host).String() + "\n")
		}
	}
	if lines.Len() == 0 {
		return "", fmt.Errorf("%w: %q is no port of the guest that is published", sandbox.ErrPort, guest)
	}
	return lines.String(), nil
}

// chosenLater follows a port whose host port nobody has chosen yet.
const chosenLater = " (this machine's port is chosen at the next start)"

// portText is a port as sandbox.ParsePort reads it, and what is to be chosen of it.
func portText(p sandbox.Port) string {
	if p.Host != 0 {
		return p.String()
	}
	text := guestPort(p)
	if p.Address.IsValid() { // ADDRESS::PORT, as docker's
		text = strings.TrimSuffix(netip.AddrPortFrom(p.Address, 0).String(), "0") + ":" + text
	}
	return text + chosenLater
}

// guestPort is a guest's port as docker writes it.
func guestPort(p sandbox.Port) string { return fmt.Sprintf("%d/%s", p.Guest, p.Proto()) }

func newPortListCommand(ui *ui) *cobra.Command {
	var list listFlags
	c := &cobra.Command{
		Use:     "ls [flags] NAME",
		Aliases: []string{"list"},
		Short:   "List a sandbox's published ports, whether it runs or not",
		Long: `Lists a sandbox's published ports. Browsers open the address under URL: cookies
don't tell ports apart, so that two sandboxes on 127.0.0.1 would share theirs.`,
		Example: `  msb port ls web`,
		Args:    named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(_ context.Context, home *sandbox.Home) error {
				ports, err := home.Ports().List(args[0])
				if err != nil {
					return err
				}
				return printPorts(ui, c, &list, args[0], ports)
			})
		},
	}
	list.register(c)
	return c
}

func printPorts(ui *ui, c *cobra.Command, list *listFlags, name string, ports []sandbox.Port) error {
	type row struct {
		Port  string   `json:"port"`
		Host  uint16   `json:"host"` // 0 is chosen at the next start
		Guest string   `json:"guest"`
		Hosts []string `json:"hosts"`
		URL   string   `json:"url"`
	}
	rows := make([]row, 0, len(ports))
	for _, p := range ports {
		r := row{Port: strings.TrimSuffix(portText(p), chosenLater), Host: p.Host, Guest: guestPort(p), Hosts: []string{}}
		for _, a := range p.Addresses() {
			if p.Host != 0 {
				r.Hosts = append(r.Hosts, netip.AddrPortFrom(a, p.Host).String())
			}
			if p.Host != 0 && !p.UDP && isLocalhost(a) {
				r.URL = fmt.Sprintf("http://%s.localhost:%d", name, p.Host)
			}
		}
		rows = append(rows, r)
	}
	return printList(ui, c, list, rows, func(r *row) string { return r.Port }, func(rows []row) [][]string {
		table := append(make([][]string, 0, 1+len(rows)), []string{"GUEST", "HOST", "URL"})
		for _, r := range rows {
			table = append(table, []string{r.Guest, cmp.Or(strings.Join(r.Hosts, ", "), "chosen at the next start"), cmp.Or(r.URL, "-")})
		}
		return table
	})
}

// isLocalhost reports whether a listener at an address is reached under localhost.
func isLocalhost(a netip.Addr) bool {
	return a.IsUnspecified() || a == netip.IPv6Loopback() || a == netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

const portRemedy = "name the sandbox and the ports, as in msb port add web 8080:80"

func newPortAddCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "add NAME [ADDRESS:]HOSTPORT:PORT[/udp]...",
		Short: "Publish ports of a sandbox: at once if it runs, and at each start",
		Long: `Publishes ports as -p of msb run does: at once if the sandbox runs, and at each
start. Prints each with what was chosen for it; for a sandbox that doesn't run, any
port of this machine is chosen at its next start, and kept.`,
		Example: `  msb port add web 8080:80
  msb port add web 80            # any port of this machine`,
		Args: named(cobra.MinimumNArgs(2), portRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return eachPort(c, args, func(ctx context.Context, home *sandbox.Home, p sandbox.Port) error {
				p, err := home.Ports().Add(ctx, args[0], p)
				if err != nil {
					return err
				}
				return ui.print(portText(p) + "\n")
			})
		},
	}
}

func newPortRemoveCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME [[ADDRESS:]HOSTPORT:]PORT[/udp]...",
		Aliases: []string{"remove"},
		Short:   "End published ports of a sandbox, and their connections",
		Long: `Ends published ports and the connections that they carry. PORT alone is every
port of this machine that leads to that one. Prints each that was removed.`,
		Example: `  msb port rm web 8080:80
  msb port rm web 80             # all that lead to the guest's port 80`,
		Args: named(cobra.MinimumNArgs(2), "name the sandbox and the ports, as in msb port rm web 8080:80"),
		RunE: func(c *cobra.Command, args []string) error {
			return eachPort(c, args, func(ctx context.Context, home *sandbox.Home, p sandbox.Port) error {
				removed, err := home.Ports().Remove(ctx, args[0], p)
				for _, r := range removed {
					if err := ui.print(portText(r) + "\n"); err != nil {
						return err
					}
				}
				return err
			})
		},
	}
}

// eachPort reads the ports after a name, and calls do for each.
func eachPort(c *cobra.Command, args []string, do func(context.Context, *sandbox.Home, sandbox.Port) error) error {
	ports := make([]sandbox.Port, 0, len(args)-1)
	for _, a := range args[1:] {
		p, err := sandbox.ParsePort(a)
		if err != nil {
			return err
		}
		ports = append(ports, p)
	}
	return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
		for _, p := range ports {
			if err := do(ctx, home, p); err != nil {
				return err
			}
		}
		return nil
	})
}
