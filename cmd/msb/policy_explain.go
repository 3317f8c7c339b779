package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/probe"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

func newPolicyExplain(ui *ui) *cobra.Command {
	var to, at, method, path, from, floor string
	var asJSON bool
	c := &cobra.Command{
		Use:   "explain FILE|SANDBOX|PRESET --to HOST:PORT[/udp]|--from ADDRESS|sandbox:NAME:PORT",
		Short: "Show the steps by which a destination is judged",
		Example: `  msb policy explain policy.toml --to api.github.com:443
  msb policy explain agent --to api.github.com:443 --method POST --path /repos/acme/x
  msb policy explain public --to 169.254.169.254:80
  msb policy explain web --from 192.168.1.7
  msb policy explain db.toml --from sandbox:web:5432`,
		Long: `Shows the steps by which the policy judges a destination. Nothing is resolved
or sent: a name is taken to have an address that its rules allow it, or the one
given with --at, and the client to speak TLS or HTTP, what the policy lets out on
the port. --from says instead whether a client at an address may connect to
published ports, or another sandbox to a port of the guest.
Exit code 0 for allow and inspect, 3 for deny.`,
		Args: named(cobra.ExactArgs(1), "name the one policy: a file, a sandbox or a preset"),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := loadUnder(floor, args[0])
			if err != nil {
				return err
			}
			if from != "" {
				return explainClient(ui, p, from, asJSON)
			}
			t, err := target(to, at, method, path)
			if err != nil {
				return err
			}
			a, err := probe.Ask(p, t)
			if err != nil {
				return err
			}
			if err := printAnswer(ui, &a, asJSON); err != nil {
				return err
			}
			if a.Denied() {
				return exitCode(exitDenied)
			}
			return nil
		},
	}
	floorFlag(c, &floor)
	c.Flags().StringVar(&to, "to", "", "the destination, `HOST:PORT[/udp]` or HOST/icmp")
	c.Flags().StringVar(&at, "at", "", "the `address` that HOST has")
	c.Flags().StringVar(&method, "method", "", "an HTTP `method`")
	c.Flags().StringVar(&path, "path", "", "an HTTP `path`")
	c.Flags().StringVar(&from, "from", "", "the `address` of a client of published ports, or sandbox:NAME:PORT")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.PreRunE = func(c *cobra.Command, _ []string) error { return checkExplain(c, to, from) }
	return c
}

// checkExplain asks for a destination or a client.
func checkExplain(c *cobra.Command, to, from string) error {
	if from == "" && to == "" {
		return &usageError{err: errors.New("--to is missing; write --to HOST:PORT[/udp]"), help: c.CommandPath() + " --help"}
	}
	for _, other := range []string{"to", "at", "method", "path"} {
		if from != "" && c.Flags().Changed(other) {
			return &usageError{err: fmt.Errorf("--from and --%s: --from is about clients of published ports, the other about destinations; give one of them", other), help: c.CommandPath() + " --help"}
		}
	}
	return nil
}

// explainClient says whether a client may connect to published ports, or another sandbox to a port of the guest.
func explainClient(ui *ui, p *policies.Policy, from string, asJSON bool) error {
	v, err := judgeClient(p, from)
	if err != nil {
		return &usageError{err: err, help: "msb policy explain --help"}
	}
	if asJSON {
		err = ui.json(struct {
			Client string `json:"client"`
			Action string `json:"action"`
			Rule   string `json:"rule,omitempty"`
			Reason string `json:"reason"`
		}{from, v.Action.String(), v.Rule, v.Reason.String()})
	} else {
		why := "rule " + audit.Printable(v.Rule)
		switch {
		case v.Action != egress.Allow:
			why = "no rule of [[ingress.allow]] lets it connect, or a floor has none; an address of this machine itself always may"
		case v.Rule == "":
			why = "it is this machine itself"
		}
		err = ui.print(fmt.Sprintf("%s %s: %s\n", v.Action, from, why))
	}
	if err == nil && v.Action != egress.Allow {
		err = exitCode(exitDenied)
	}
	return err
}

// judgeClient judges ADDRESS or sandbox:NAME:PORT.
func judgeClient(p *policies.Policy, from string) (egress.Verdict, error) {
	if client, err := netip.ParseAddr(from); err == nil {
		return egress.Admit(p, client, client.IsLoopback()), nil
	}
	peer, isPeer := strings.CutPrefix(from, "sandbox:")
	name, port, _ := strings.Cut(peer, ":")
	n, err := strconv.ParseUint(port, 10, 16)
	if !isPeer || sandbox.CheckName(name) != nil || err != nil || n == 0 {
		return egress.Verdict{}, fmt.Errorf("--from %q: write an address such as 192.168.1.7, or sandbox:web:5432 for the sandbox web and a port of the guest; docs/ports.md has rules for both", from)
	}
	return egress.AdmitSandbox(p, name, uint16(n)), nil
}

func printAnswer(ui *ui, a *probe.Answer, asJSON bool) error {
	if asJSON {
		return ui.json(a)
	}
	rows := make([][]string, 0, len(a.Steps))
	for _, s := range a.Steps {
		rows = append(rows, []string{s.Stage, s.What, s.Result})
	}
	if err := ui.table(rows); err != nil {
		return err
	}
	return ui.print(fmt.Sprintf("\n%s %s: %s\n", a.Action, a.Target, a.Message))
}
