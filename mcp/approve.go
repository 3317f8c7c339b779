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

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

const (
	// approvalKey names the question to a person among those of a result.
	approvalKey = "approval"
	// quietAfterDenial is how long a person who denied a host to a sandbox isn't asked for it again by the client: an agent
	// that asks until somebody agrees by mistake gets one question.
	quietAfterDenial = time.Hour
	// maxAsking bounds the questions that wait for persons while calls are under way, all clients together.
	maxAsking = 16
	// maxReason bounds the sentence of a person, in bytes; state.maxRequestText is above it.
	maxReason = 400
)

// decisions are what a person may answer, and the lifetimes that they stand for. The first, which some clients choose
// beforehand, opens nothing.
var decisions = []struct{ say, lifetime string }{
	{"deny", ""}, {"allow once", "once"}, {"allow for an hour", "hour"}, {"allow as long as the sandbox is there", "sandbox"},
}

// human is the person behind a client, during one call. The client vouches for them.
type human struct {
	by   string
	asks bool // the floor lets the client ask, and the client can
	// elicit asks while the call is under way. nil in the revisions that ask between two calls: want, then answer and state.
	elicit func(context.Context, *sdk.ElicitParams) (*sdk.ElicitResult, error)
	// state and answer are what the client brought back.
	state  string
	answer *sdk.ElicitResult

	mu     sync.Mutex
	result *sdk.CallToolResult
	late   bool // the call was answered without
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

// vouched says in the audit log who answered. The client says both words of itself.
func vouched(c *sdk.Implementation) string {
	if c == nil {
		c = &sdk.Implementation{}
	}
	return fmt.Sprintf("a person, vouched by client %q %q", printed(c.Name), printed(c.Version))
}

// want has the call's result be a question, unless the call was answered already.
func (h *human) want(q *sdk.ElicitParams, state string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.late {
		h.result = &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{approvalKey: q}, RequestState: state}
	}
}

// question is the result of want; what is wanted later is lost.
func (h *human) question() *sdk.CallToolResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.late = true
	return h.result
}

// questionAbout is what a person reads. The reason is the agent's, and shown as such.
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
		Message: fmt.Sprintf("Sandbox %s asks to reach https://%s%s, which its policy denies. The agent gives as its reason: %q",
			name, printed(destination(r)), how, printed(r.Why)),
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

// about is what an answer to a question about a call is for: this sandbox, and all that the call asks for. The sandbox of
// that name of another day is another.
func about(st *sandbox.Status, a *networkArgs, by string) ([]byte, error) {
	return json.Marshal([]any{st.Name, st.Created, a, by})
}

// ask puts a request to the person behind a client, and does what they say. asked is what a client is told where no
// person was asked, or none decided.
func (s networkTool) ask(ctx context.Context, h *human, st *sandbox.Status, a *networkArgs, r *sandbox.Request, asked string) (string, error) {
	if !h.asks {
		return asked, nil
	}
	if denied, err := s.deniedLately(st, r); err != nil || denied {
		return asked + "The user denied this host within the hour: their client doesn't ask them again\n", err
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

// elicited waits for a person's answer by the client. It ends when the request was answered in a terminal, or expired.
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

// resume takes the answer that a client brought back with the call made again.
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

// decide does what a person said. Only a decision opens anything: a form that was sent as it came has none.
func (s networkTool) decide(ctx context.Context, st *sandbox.Status, id, by string, said *sdk.ElicitResult, undecided string) (string, error) {
	a := sandbox.RequestAnswer{ID: id, By: by}
	switch said.Action {
	case "decline":
	case "accept":
		decision, _ := said.Content["decision"].(string)
		i := slices.IndexFunc(decisions, func(d struct{ say, lifetime string }) bool { return d.say == decision })
		if i < 0 {
			return s.unlessAnswered(st, id, undecided)
		}
		a.Lifetime, a.Approve = decisions[i].lifetime, decisions[i].lifetime != ""
		why, _ := said.Content["why"].(string)
		a.Reason = shortened(why)
	default: // they looked at something else
		return s.unlessAnswered(st, id, undecided)
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
	return s.unlessAnswered(st, id, undecided)
}

// shortened is a person's reason, as long as one may be.
func shortened(why string) string {
	why = strings.ToValidUTF8(why, "")
	if len(why) <= maxReason {
		return why
	}
	return strings.ToValidUTF8(why[:maxReason], "") + "…"
}

// unlessAnswered says what became of a request; otherwise is the text of one that waits.
func (s networkTool) unlessAnswered(st *sandbox.Status, id, otherwise string) (string, error) {
	r, err := s.requestOf(st, id)
	if err != nil || r.State == sandbox.RequestPending {
		return otherwise, err
	}
	return answered(r)
}

// deniedLately reports whether a person denied the destination of a request to its sandbox within quietAfterDenial.
func (s networkTool) deniedLately(st *sandbox.Status, asked *sandbox.Request) (bool, error) {
	all, err := s.only(st).Requests().List(st.Name)
	return slices.ContainsFunc(all, func(r sandbox.Request) bool {
		return r.State == sandbox.RequestDenied && r.Host == asked.Host && r.Port == asked.Port && r.Answered != nil && time.Since(*r.Answered) < quietAfterDenial
	}), err
}

// waitsFor says what can be done about a request that a person has not answered.
func waitsFor(id string) string {
	return fmt.Sprintf("Nothing is open yet, and no tool can answer it. Tell the user that they decide, in a terminal of their own: msb requests approve %s, or msb requests deny %s. Then call network with action answer and request %s, which waits for what they say\n", id, id, id)
}
