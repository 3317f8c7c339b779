package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	osuser "os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/internal/printable"
	"github.com/msb-project/msb/sandbox"
)

const requestRemedy = "name the request by its id; `msb requests ls` shows them"

func newRequestsCommand(ui *ui) *cobra.Command {
	c := &cobra.Command{
		Use:   "requests",
		Short: "See and answer what agents ask for",
		Long: `An agent of msb mcp asks for a host that the policy of its sandbox doesn't allow. Nothing
opens until you approve it here. What can be asked for is bounded by may_request of the
policy's [agent]; docs/mcp.md has the details.`,
		Example: `  msb requests ls
  msb requests approve --for once k3x7pq2m
  msb requests deny --why "use the mirror" k3x7pq2m`,
	}
	c.AddCommand(newRequestsList(ui), newRequestsApprove(ui), newRequestsDeny(ui))
	return onlyGroups(c)
}

// listedRequest is a request with its sandbox.
type listedRequest struct {
	Sandbox string `json:"sandbox"`
	sandbox.Request
}

func newRequestsList(ui *ui) *cobra.Command {
	var flags listFlags
	var all bool
	c := &cobra.Command{
		Use:     "ls [flags] [NAME...]",
		Aliases: []string{"list"},
		Short:   "List the requests that wait for an answer, and what is approved",
		Example: `  msb requests ls
  msb requests ls --all default`,
		RunE: func(c *cobra.Command, names []string) error {
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			found, err := requestsOf(home, names, all)
			if err != nil {
				return err
			}
			return printList(ui, c, &flags, found, func(r *listedRequest) string { return r.ID },
				func(all []listedRequest) [][]string { return requestRows(all, time.Now()) })
		},
	}
	flags.register(c)
	c.Flags().Lookup("quiet").Usage = "print ids only"
	c.Flags().BoolVarP(&all, "all", "a", false, "list those that were denied or are over, too")
	return c
}

// requestsOf are the requests of these sandboxes, of all of them for none.
func requestsOf(home *sandbox.Home, names []string, all bool) (found []listedRequest, err error) {
	named := len(names) > 0
	if !named {
		sandboxes, err := home.List()
		if err != nil {
			return nil, err
		}
		for i := range sandboxes {
			names = append(names, sandboxes[i].Name)
		}
	}
	for _, name := range names {
		requests, err := home.Requests().List(name)
		if err != nil && !named && (errors.Is(err, sandbox.ErrNoSandbox) || errors.Is(err, sandbox.ErrState)) { // removed meanwhile, or damaged
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range requests {
			if all || requests[i].State == sandbox.RequestPending || requests[i].State == sandbox.RequestApproved {
				found = append(found, listedRequest{name, requests[i]})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b listedRequest) int { return a.Asked.Compare(b.Asked) })
	return found, nil
}

func requestRows(all []listedRequest, now time.Time) [][]string {
	rows := append(make([][]string, 0, 1+len(all)), []string{"ID", "SANDBOX", "HOST", "METHODS", "STATE", "WHY"})
	for i := range all {
		r := &all[i]
		state := string(r.State)
		switch {
		case r.State == sandbox.RequestPending:
			state += ", " + age(r.Expires.Sub(now)) + " left"
		case r.Used:
			state = "used " + r.Lifetime
		case r.State == sandbox.RequestApproved && r.Until != nil:
			state += " " + r.Lifetime + ", " + age(r.Until.Sub(now)) + " left"
		case r.State == sandbox.RequestApproved:
			state += " " + r.Lifetime
		}
		rows = append(rows, []string{r.ID, r.Sandbox, hostOf(&r.Request), cmp.Or(strings.Join(r.Methods, ","), "all"), state, printable.Quoted(r.Why)})
	}
	return rows
}

func hostOf(r *sandbox.Request) string {
	return audit.Printable(net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port))))
}

func newRequestsApprove(ui *ui) *cobra.Command {
	var lifetime, why string
	lifetimes := sandbox.RequestLifetimes()
	c := &cobra.Command{
		Use:   "approve [flags] ID...",
		Short: "Let sandboxes reach what they ask for",
		Long: `Puts what was asked for in force in its sandbox, at once, beside its policy: https to that one
host and port, by these methods. Deny rules still beat it. --for says for how long: once (until
the first connection that uses it has ended, an hour at most), hour, or sandbox (until the
sandbox is removed). msb requests deny takes it back.`,
		Example: `  msb requests approve k3x7pq2m
  msb requests approve --for sandbox --why "needed by the build" k3x7pq2m`,
		Args: named(cobra.MinimumNArgs(1), requestRemedy),
		RunE: func(c *cobra.Command, ids []string) error {
			if !slices.Contains(lifetimes, lifetime) {
				return &usageError{err: fmt.Errorf("--for %q: write %s", lifetime, strings.Join(lifetimes, ", ")), help: c.CommandPath() + " --help"}
			}
			return answerRequests(ui, c, ids, sandbox.RequestAnswer{Approve: true, Lifetime: lifetime, Reason: why})
		},
	}
	c.Flags().StringVar(&lifetime, "for", "hour", "for how `long`: "+strings.Join(lifetimes, ", "))
	c.Flags().StringVar(&why, "why", "", "a `sentence` for the audit log and the agent")
	_ = c.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(lifetimes, cobra.ShellCompDirectiveNoFileComp)) // its only error is a flag that doesn't exist
	return c
}

func newRequestsDeny(ui *ui) *cobra.Command {
	var why string
	c := &cobra.Command{
		Use:     "deny [flags] ID...",
		Aliases: []string{"revoke"},
		Short:   "Deny requests, or take back what was approved (also: revoke)",
		Long:    "Denies requests that wait. What was approved is taken back, and its open connections are reset.",
		Example: `  msb requests deny --why "use the mirror" k3x7pq2m`,
		Args:    named(cobra.MinimumNArgs(1), requestRemedy),
		RunE: func(c *cobra.Command, ids []string) error {
			return answerRequests(ui, c, ids, sandbox.RequestAnswer{Reason: why})
		},
	}
	c.Flags().StringVar(&why, "why", "", "a `sentence` for the audit log and the agent")
	return c
}

func answerRequests(ui *ui, c *cobra.Command, ids []string, a sandbox.RequestAnswer) error {
	a.By = strconv.Itoa(os.Getuid())
	if u, err := osuser.Current(); err == nil {
		a.By = u.Username
	}
	a.By += " by msb requests"
	return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
		return forEach(ids, func(id string) error {
			name, r, err := home.Requests().Find(id)
			if err != nil {
				return err
			}
			a.ID = id
			if err := home.Requests().Answer(ctx, name, a); err != nil {
				return err
			}
			done := "denied"
			switch {
			case a.Approve:
				done = "approved for " + a.Lifetime
			case r.State == sandbox.RequestApproved:
				done = "taken back"
			}
			return ui.print(fmt.Sprintf("%s: %s to %s %s\n", id, name, hostOf(&r), done))
		})
	})
}

// requestIDs completes the ids of requests that can be answered.
func requestIDs(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var ids []cobra.Completion
	if home, err := sandbox.OpenHome(""); err == nil {
		all, _ := requestsOf(home, nil, false) // no completion is an error
		for i := range all {
			if !slices.Contains(args, all[i].ID) {
				ids = append(ids, cobra.CompletionWithDesc(all[i].ID, all[i].Sandbox+" to "+hostOf(&all[i].Request)))
			}
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
