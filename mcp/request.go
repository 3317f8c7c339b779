package mcp

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// answerPoll is how often a request is checked while a call waits for its answer.
const answerPoll = 500 * time.Millisecond

// request puts a request to the operator. No call answers it: a person does, with msb requests, or in the client if the
// floor says so.
func (s networkTool) request(ctx context.Context, st *sandbox.Status, a *networkArgs) (string, error) {
	host, port, err := requested(a.To)
	if err != nil {
		return "", err
	}
	if a.Why == "" {
		return "", wrong("say why: the operator decides by it")
	}
	// The sandbox keeps the floor that it was made with; may_request may be narrower now.
	if _, err := policies.RequestRule(s.opts.Floor, host, port, a.Methods); err != nil {
		return "", say("%s", printed(err.Error()))
	}
	h, _ := ctx.Value(humanKey{}).(*human)
	if h != nil && h.state != "" {
		return s.resume(ctx, h, st, a)
	}
	r, err := s.only(st).Requests().Ask(ctx, st.Name, host, port, a.Methods, a.Why)
	if err != nil { // none of its text is a guest's
		return "", say("%s", printed(withoutCommands(err.Error())))
	}
	text := "request " + r.ID + " waits for the operator, until " + r.Expires.Format(time.RFC3339) + ". " + waitsFor(r.ID)
	if h == nil {
		return text, nil
	}
	return s.ask(ctx, h, st, a, &r, text)
}

// requested is a destination of a request: HOST or HOST:PORT.
func requested(to string) (host string, port uint16, err error) {
	host = to
	if h, p, err := net.SplitHostPort(to); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return "", 0, wrong("to %q: give HOST or HOST:PORT", printed(to))
		}
		host, port = h, uint16(n)
	}
	if host == "" || strings.Contains(host, "/") {
		return "", 0, wrong("to %q: give HOST or HOST:PORT, such as api.github.com", printed(to))
	}
	return host, port, nil
}

// shownRequest is a request as a client sees it.
type shownRequest struct {
	ID      string     `json:"request"`
	To      string     `json:"to"`
	Methods []string   `json:"methods,omitempty"`
	State   string     `json:"state"`
	For     string     `json:"for,omitempty"`
	Until   *time.Time `json:"until,omitempty"`
	Reason  string     `json:"reason,omitempty"`
}

// answer waits for the answer to a request, or lists all requests of the sandbox.
func (s networkTool) answer(ctx context.Context, st *sandbox.Status, id string) (string, error) {
	if id == "" {
		all, err := s.only(st).Requests().List(st.Name)
		if err != nil {
			return "", err
		}
		shown := make([]shownRequest, 0, len(all))
		for i := range all {
			r := &all[i]
			if r.Used {
				r.State = "used"
			}
			shown = append(shown, shownRequest{r.ID, destination(r), r.Methods, string(r.State), r.Lifetime, r.Until, r.Reason})
		}
		return asJSON(shown)
	}
	r, err := s.outcome(ctx, st, id)
	if err != nil {
		return "", err
	}
	return answered(r)
}

// outcome waits until a request is answered or has ended.
func (s networkTool) outcome(ctx context.Context, st *sandbox.Status, id string) (*sandbox.Request, error) {
	tick := time.NewTicker(answerPoll)
	defer tick.Stop()
	for {
		r, err := s.requestOf(st, id)
		if err != nil || r.State != sandbox.RequestPending {
			return r, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

func (s networkTool) requestOf(st *sandbox.Status, id string) (*sandbox.Request, error) {
	all, err := s.only(st).Requests().List(st.Name)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(r sandbox.Request) bool { return r.ID == id })
	if i < 0 {
		return nil, say("there is no request %q of sandbox %s; action answer without request lists them", printed(id), st.Name)
	}
	return &all[i], nil
}

// answered says how a request ended; everything but an approval is a failure.
func answered(r *sandbox.Request) (string, error) {
	why := ""
	if r.Reason != "" {
		why = ": " + printed(r.Reason)
	}
	to := printed(destination(r))
	switch r.State { //nolint:exhaustive // one that waits comes to no answer
	case sandbox.RequestApproved:
		lasts := map[string]string{"once": "until the first connection that uses it has ended", "hour": "for an hour", "sandbox": "as long as the sandbox is there"}[r.Lifetime]
		return "approved" + why + "; " + to + " is open to this sandbox " + lasts + "\n", nil
	case sandbox.RequestDenied:
		return "", say("the operator denied %s%s; do without it", to, why)
	case sandbox.RequestRevoked:
		return "", say("the operator took %s back%s; do without it", to, why)
	case sandbox.RequestExpired:
		return "", say("nobody answered the request for %s in time, and it has expired; ask the user, then request it again", to)
	}
	return "", say("the time of %s is over; request it again if you need it", to)
}
