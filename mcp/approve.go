package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/internal/printable"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

const (
	// approvalKey names the question to a person among those of a result.
	approvalKey = "approval"
	// maxAsking bounds the calls that wait for a person's answer, over all clients.
	maxAsking = 16
	// maxReason bounds the sentence of a person, in bytes; state.maxRequestText is above it.
	maxReason = 400
)

// decisions are the answers that a person can choose, with the lifetimes that they stand for. The first one opens nothing,
// since some clients preselect it.
var decisions = []struct{ say, lifetime string }{
	{"deny", ""}, {"allow once", "once"}, {"allow for an hour", "hour"}, {"allow as long as the sandbox is there", "sandbox"},
}

// human is the person behind a client, during one call. Only the client knows who answers.
type human struct {
	by   string
	asks bool // the floor lets the client ask, and the client can
	// elicit asks during the call. It is nil in the revisions that ask between two calls, which use want, then answer and
	// state.
	elicit func(context.Context, *sdk.ElicitParams) (*sdk.ElicitResult, error)
	// state and answer are what the client brought back.
	state  string
	answer *sdk.ElicitResult

	mu     sync.Mutex
	result *sdk.CallToolResult
	late   bool // the call was answered without a question
}

type humanKey struct{}

// withHuman lets a call ask the person behind its client.
func (s networkTool) withHuman(ctx context.Context, req *sdk.CallToolRequest) (context.Context, *human) {
	h := &human{state: req.Params.RequestState, by: vouched(req.ClientInfo())}
	h.answer, _ = req.Params.InputResponses[approvalKey].(*sdk.ElicitResult)
	caps := req.ClientCapabilities()
	if a := s.opts.Floor.Agent; a != nil && a.Approve == policies.ByClient && caps != nil && caps.Elicitation != nil {
		h.asks = caps.Elicitation.Form != nil || caps.Elicitation.URL == nil // an empty one is for forms
	}
	if req.ProtocolVersion() < statelessVersion {
		h.elicit = req.Session.Elicit
	}
	return context.WithValue(ctx, humanKey{}, h), h
}

// vouched names, for the audit log, the client that vouches for an answer. Its name and version are the client's own words.
func vouched(c *sdk.Implementation) string {
	if c == nil {
		c = &sdk.Implementation{}
	}
	return fmt.Sprintf("a person, vouched by client %q %q", printed(c.Name), printed(c.Version))
}

// want makes the call's result a question, unless the call was answered already.
func (h *human) want(q *sdk.ElicitParams, state string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.late {
		h.result = &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{approvalKey: q}, RequestState: state}
	}
}

// question ends the call with the question of want, or with nil. Later calls of want have no effect.
func (h *human) question() *sdk.CallToolResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.late = true
	return h.result
}

// questionAbout is the question that a person reads. It shows the reason as the agent's words.
func questionAbout(name string, r *sandbox.Request) *sdk.ElicitParams {
	how := ""
	if len(r.Methods) > 0 {
		how = " (" + strings.Join(r.Methods, ", ") + ")"
	}
	says := make([]string, 0, len(decisions))
	for _, d := range decisions {
		says = append(says, d.say)
	}
	return &sdk.ElicitParams{
		Mode: "form",
		Message: fmt.Sprintf("Sandbox %s asks to reach https://%s%s, which its policy denies. The agent gives as its reason: %s",
			name, printed(destination(r)), how, printable.Quoted(r.Why)),
		RequestedSchema: map[string]any{
			"type": "object", "required": []string{"decision"},
			"properties": map[string]any{
				"decision": map[string]any{"type": "string", "title": "Decision", "description": "What is open to this sandbox beside its policy", "enum": says},
				"why":      map[string]any{"type": "string", "title": "Why", "description": "For the audit log and the agent", "maxLength": maxReason},
			},
		},
	}
}

func destination(r *sandbox.Request) string {
	return net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port)))
}

// about identifies what an answer is for: the sandbox, by name and creation time, and everything that the call asks for.
func about(st *sandbox.Status, a *networkArgs, by string) ([]byte, error) {
	return json.Marshal([]any{st.Name, st.Created, a, by})
}

// ask puts a request to the person behind a client and carries out the decision. asked is the result if nobody was asked or
// nobody decided.
func (s networkTool) ask(ctx context.Context, h *human, st *sandbox.Status, a *networkArgs, r *sandbox.Request, asked string) (string, error) {
	if !h.asks {
		return asked, nil
	}
	if quiet, err := s.quiet(r); err != nil || quiet != "" {
		return asked + quiet, err
	}
	if h.elicit == nil {
		what, err := about(st, a, h.by)
		if err != nil {
			return "", err
		}
		if state, ok := s.seals.seal(what, r.ID, r.Expires); ok {
			h.want(questionAbout(st.Name, r), state)
		}
		return asked, nil
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	default:
		return asked, nil
	}
	answer, err := s.elicited(ctx, h, st, r)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		s.log.Warn("the client could not ask its user", "err", printed(err.Error()))
		return s.unlessAnswered(st, r.ID, asked)
	}
	return s.decide(ctx, st, r.ID, h.by, answer, asked)
}

// elicited waits for a person's answer in the client. It ends early when the request is answered in a terminal, or expires.
func (s networkTool) elicited(ctx context.Context, h *human, st *sandbox.Status, r *sandbox.Request) (*sdk.ElicitResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel() // before the wait
	watch.Go(func() {
		defer cancel()
		_, _ = s.outcome(ctx, st, r.ID)
	})
	return h.elicit(ctx, questionAbout(st.Name, r))
}

// resume takes the answer that a client brought with its second call.
func (s networkTool) resume(ctx context.Context, h *human, st *sandbox.Status, a *networkArgs) (string, error) {
	what, err := about(st, a, h.by)
	if err != nil {
		return "", err
	}
	id, err := s.seals.open(what, h.state)
	if err != nil {
		return "", said{err}
	}
	waits := waitsFor(id)
	if !h.asks || h.answer == nil {
		return s.unlessAnswered(st, id, waits)
	}
	return s.decide(ctx, st, id, h.by, h.answer, waits)
}

// decide carries out a person's decision. A form that was sent unchanged holds none, and opens nothing.
func (s networkTool) decide(ctx context.Context, st *sandbox.Status, id, by string, said *sdk.ElicitResult, undecided string) (string, error) {
	a := sandbox.RequestAnswer{ID: id, By: by}
	switch said.Action {
	case "decline":
	case "accept":
		decision, _ := said.Content["decision"].(string)
		i := slices.IndexFunc(decisions, func(d struct{ say, lifetime string }) bool { return d.say == decision })
		if i < 0 {
			return s.dismissed(st, id, undecided)
		}
		a.Lifetime, a.Approve = decisions[i].lifetime, decisions[i].lifetime != ""
		why, _ := said.Content["why"].(string)
		a.Reason = shortened(why)
	default: // the person closed the question
		return s.dismissed(st, id, undecided)
	}
	err := s.only(st).Requests().Answer(ctx, st.Name, a)
	if errors.Is(err, sandbox.ErrRequest) { // it was answered in a terminal meanwhile
		if text, other := s.unlessAnswered(st, id, ""); text != "" || other != nil {
			return text, other
		}
	}
	if err != nil {
		return "", say("%s", printed(withoutCommands(err.Error())))
	}
	if r, err := s.requestOf(st, id); err == nil && r.State == sandbox.RequestDenied {
		s.denials.note(destination(r), time.Now())
	}
	return s.unlessAnswered(st, id, undecided)
}

// dismissed is the result of a question that was closed without a decision.
func (s networkTool) dismissed(st *sandbox.Status, id, undecided string) (string, error) {
	s.denials.note(id, time.Now())
	return s.unlessAnswered(st, id, undecided)
}

// shortened is a person's reason, cut to maxReason.
func shortened(why string) string {
	why = strings.ToValidUTF8(why, "")
	if len(why) <= maxReason {
		return why
	}
	return strings.ToValidUTF8(why[:maxReason], "") + "…"
}

// unlessAnswered says how a request was answered; for a pending one it returns otherwise.
func (s networkTool) unlessAnswered(st *sandbox.Status, id, otherwise string) (string, error) {
	r, err := s.requestOf(st, id)
	if err != nil || r.State == sandbox.RequestPending {
		return otherwise, err
	}
	return answered(r)
}

// quiet says why the client doesn't ask a person now; "" if it does. A denial counts for every sandbox.
func (s networkTool) quiet(asked *sandbox.Request) (string, error) {
	mine, err := s.mine()
	if err != nil {
		return "", err
	}
	denied, tooMany := s.denials.lately(destination(asked))
	for i := range mine {
		all, err := s.only(&mine[i]).Requests().List(mine[i].Name)
		if err != nil && !errors.Is(err, sandbox.ErrNoSandbox) && !errors.Is(err, sandbox.ErrState) { // removed meanwhile, or damaged
			return "", err
		}
		denied = denied || slices.ContainsFunc(all, func(r sandbox.Request) bool {
			return deniedLately(&r) && r.Host == asked.Host && r.Port == asked.Port
		})
	}
	switch {
	case denied:
		return "The user denied this host within the hour: their client doesn't ask them again\n", nil
	case tooMany:
		return fmt.Sprintf("The user refused %d questions within the hour: their client doesn't ask them more\n", maxRefused), nil
	}
	return "", nil
}

// waitsFor says what can be done about a request that a person has not answered.
func waitsFor(id string) string {
	return fmt.Sprintf("Nothing is open yet, and no tool can answer it. Tell the user that they decide, in a terminal of their own: msb requests approve %s, or msb requests deny %s. Then call network with action answer and request %s, which waits for what they say\n", id, id, id)
}
