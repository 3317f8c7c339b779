package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"

	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

func newDNSCommand(ui *ui) *cobra.Command {
	var policy, qtype, floor, audited string
	var trust bool
	c := &cobra.Command{
		Use:     "dns NAME --policy FILE|SANDBOX|PRESET",
		Short:   "Show the answer that a guest would get for a name, and why",
		Long:    "Asks the resolver that a sandbox under this policy would have, upstream servers included. Exit code 3 when the name is refused, 125 when no server answered.",
		Example: "  msb dns api.github.com --policy policy.toml\n  msb dns example.com --type HTTPS --policy web",
		Args:    named(cobra.ExactArgs(1), "name the one host name to resolve"),
		RunE: func(c *cobra.Command, args []string) error {
			if strings.ContainsAny(args[0], ":/ ") {
				return &usageError{err: fmt.Errorf("%q is no host name; write the name alone, as api.github.com", args[0]), help: "msb dns --help"}
			}
			code, ok := dns.StringToType[strings.ToUpper(qtype)]
			if !ok {
				return &usageError{err: fmt.Errorf("--type %q: there is no such record type", qtype), help: "msb dns --help"}
			}
			err := apart([]namedFile{{"--audit", audited, true}, {"--policy", policy, false}, {"--floor", floor, false}}, "msb dns --help")
			if err != nil {
				return err
			}
			p, err := admittedUnder(c.Context(), ui, floor, policy, trust)
			if err != nil {
				return err
			}
			return runDNS(c.Context(), ui, args[0], code, p, audited)
		},
	}
	c.Flags().StringVar(&policy, "policy", "", "policy `file`, or the name of a sandbox or preset")
	c.Flags().StringVar(&qtype, "type", "A", "record `type`")
	c.Flags().StringVar(&audited, "audit", "", "append the verdict to this `file`, as a JSON object in a line")
	floorFlag(c, &floor)
	trustFlag(c.Flags(), &trust)
	required(c, "policy")
	return c
}

// admittedUnder reads a policy, by its file or name, under an operator's floor, for a command that applies it. What the
// policy takes from this machine must be approved, as for msb run.
func admittedUnder(ctx context.Context, ui *ui, floorPath, path string, trust bool) (*policies.Policy, error) {
	p, err := policyNamed(path)
	if err != nil {
		return nil, err
	}
	var floor *policies.Policy
	if floorPath != "" {
		if floor, err = sandbox.LoadPolicy(floorPath); err != nil {
			return nil, err
		}
	}
	err = approved(ctx, ui, func() error {
		admitted, err := sandbox.Admit(p, sandbox.AdmitOptions{Floor: floor, Trust: trust})
		if err == nil {
			p = admitted.Policy
		}
		return err
	})
	if err != nil || floor == nil {
		return p, startError(ctx, err)
	}
	tight, err := policies.Tighten(floor, p)
	return tight, sandbox.Fail(err)
}

func runDNS(ctx context.Context, ui *ui, name string, code uint16, p *policies.Policy, audited string) error {
	if n, err := hostname.Parse(name); err == nil {
		name = n.String() // Unicode and case as everywhere
	}
	classifier := egress.NewClassifier()
	if err := classifier.Refresh(); err != nil {
		return err
	}
	engine, err := egress.New(p, egress.WithClassifier(classifier))
	if err != nil {
		return err
	}
	rec, err := sandbox.OpenRecords(sandbox.RecordFiles{Audit: audited})
	if err != nil {
		return err
	}
	g, err := dnsguard.New(dnsguard.Config{Sandbox: "dns", Policy: p, Judge: engine, Audit: rec.Sink()})
	if err != nil {
		return errors.Join(err, rec.Close(nil))
	}
	err = errors.Join(askDNS(ctx, ui, g, name, code), g.Close())
	if unwritten := rec.Close(nil); unwritten != nil {
		return unwritten // an exit code alone would hide it
	}
	return err
}

func askDNS(ctx context.Context, ui *ui, g *dnsguard.Guard, name string, code uint16) error {
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), code)
	q.SetEdns0(dns.DefaultMsgSize, false)
	answer, why := g.Answer(ctx, q)
	if answer == nil {
		return fmt.Errorf("no answer: %s", why.Text)
	}
	rows := [][]string{{dns.RcodeToString[answer.Rcode], why.Outcome.String(), reason(&why)}}
	for _, rr := range answer.Answer {
		h := rr.Header()
		rows = append(rows, []string{dns.TypeToString[h.Rrtype], h.Name, fmt.Sprintf("%s (for %d s)", strings.TrimPrefix(rr.String(), h.String()), h.Ttl)})
	}
	for _, addr := range why.Removed {
		rows = append(rows, []string{"removed", addr.String(), "not an address this name may have"})
	}
	if why.HasEDE {
		rows = append(rows, []string{"EDE", strconv.Itoa(int(why.EDE)), dns.ExtendedErrorCodeToString[why.EDE]})
	}
	if why.Upstream != "" {
		rows = append(rows, []string{"asked", why.Upstream, why.Latency.Round(time.Millisecond / 10).String()})
	}
	if err := ui.table(rows); err != nil {
		return err
	}
	switch { // why is in the table
	case why.Outcome == dnsguard.OutcomeRefusedName, answer.Rcode == dns.RcodeRefused:
		return exitCode(exitDenied)
	case answer.Rcode == dns.RcodeServerFailure:
		return exitCode(exitOther)
	}
	return nil
}

// reason explains the guest's answer: what denies the name, or the rule that allows it.
func reason(why *dnsguard.Explanation) string {
	if why.Text != "" || why.Verdict.Action == egress.Deny {
		return why.Text
	}
	return why.Verdict.Message()
}
