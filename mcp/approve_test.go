package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox"
)

const handshake, stateless = "2025-11-25", statelessVersion

const clientFloor = "[agent]\napprove = \"client\"\nmay_request = [\"*.example\"]\n"

// serveAsking is a server whose floor lets clients ask, with a sandbox "default".
func serveAsking(t *testing.T) *playground {
	t.Helper()
	p := serve(t, func(o *Options) { o.Floor = policy(t, clientFloor) })
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	return p
}

// overPipes is a client of the server's own transport, in one revision of the protocol.
func overPipes(t *testing.T, s *server, version string, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	session, err := s.protocol("test").Connect(t.Context(), &transport{fromClient, toClient, stallWait, flushWait}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "claude\x1b", Version: "1.2"}, o).
		Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); _ = session.Wait() })
	return c
}

// says is a person's answer by their client.
func says(action string, content m) func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	return func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		return &sdk.ElicitResult{Action: action, Content: content}, nil
	}
}

// networkCall calls the tool network and returns its text.
func networkCall(t *testing.T, c *sdk.ClientSession, args m) (text string, failed bool) {
	t.Helper()
	r, err := c.CallTool(bounded(t), &sdk.CallToolParams{Name: "network", Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Content) != 1 {
		t.Fatalf("%+v", r)
	}
	return r.Content[0].(*sdk.TextContent).Text, r.IsError
}

// newest is the last request of the default sandbox.
func (p *playground) newest(t *testing.T) sandbox.Request {
	t.Helper()
	all, err := p.opts.Home.Requests().List(defaultName)
	if err != nil || len(all) == 0 {
		t.Fatalf("%v, %v", all, err)
	}
	return all[len(all)-1]
}

// TestI15_PersonsAnswerInTheirClient in both ways that clients have for it. What is no decision opens nothing.
func TestI15_PersonsAnswerInTheirClient(t *testing.T) {
	t.Parallel()
	for _, version := range []string{handshake, stateless} {
		p := serveAsking(t)
		for i, c := range []struct {
			action  string
			content m
			state   sandbox.RequestState
			life    string
			words   string
		}{
			{"decline", nil, sandbox.RequestDenied, "", "the operator denied"},
			{"cancel", m{"decision": "allow once"}, sandbox.RequestPending, "", "msb requests approve"},
			{"", m{"decision": "allow once"}, sandbox.RequestPending, "", "msb requests approve"},
			{"accept", nil, sandbox.RequestPending, "", "msb requests approve"},
			{"accept", m{"decision": "once"}, sandbox.RequestPending, "", "msb requests approve"},
			{"accept", m{"decision": true}, sandbox.RequestPending, "", "msb requests approve"},
			{"accept", m{"decision": "deny", "why": "the mirror"}, sandbox.RequestDenied, "", "the mirror"},
			{"decline", m{"decision": "allow once"}, sandbox.RequestDenied, "", "the operator denied"},
			{"accept", m{"decision": "allow once"}, sandbox.RequestApproved, "once", "until the first connection"},
			{"accept", m{"decision": "allow for an hour", "why": strings.Repeat("ü", maxReason)}, sandbox.RequestApproved, "hour", "for an hour"},
			{"accept", m{"decision": "allow as long as the sandbox is there", "why": "it builds"}, sandbox.RequestApproved, "sandbox", "as long as the sandbox"},
		} {
			if version == stateless && c.content["decision"] != nil && c.state == sandbox.RequestPending && c.action == "accept" {
				continue // go-sdk's client refuses it: TestI15_StatesOfQuestionsAreSealed has it
			}
			host := fmt.Sprintf("h%d.example", i)
			var asked atomic.Pointer[sdk.ElicitParams]
			client := overPipes(t, p.server, version, &sdk.ClientOptions{ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				asked.Store(r.Params)
				return says(c.action, c.content)(ctx, r)
			}})
			text, failed := networkCall(t, client, m{"action": "request", "to": host, "methods": []string{"GET"}, "why": "for\nthe \x1b[2J build"})
			r := p.newest(t)
			if r.Host != host || r.State != c.state || r.Lifetime != c.life || !strings.Contains(text, c.words) || failed != (c.state == sandbox.RequestDenied) {
				t.Errorf("%s, %s %v: %+v, failed %v: %s", version, c.action, c.content, r, failed, text)
			}
			if q := asked.Load(); q == nil || !strings.Contains(q.Message, "https://"+host+":443 (GET)") || strings.ContainsAny(q.Message, "\x1b\n") {
				t.Errorf("%s: asked %+v", version, q)
			}
			if c.state != sandbox.RequestPending && r.By != `a person, vouched by client "claude\\x1b" "1.2"` {
				t.Errorf("%s: answered by %s", version, r.By)
			}
			explained, _ := networkCall(t, client, m{"action": "explain", "to": host + ":443", "method": "GET", "path": "/"})
			if open := strings.Contains(explained, `"action":"allow"`) || strings.Contains(explained, `"action":"inspect"`); open != (c.state == sandbox.RequestApproved) {
				t.Errorf("%s, %s %v: %s", version, c.action, c.content, explained)
			}
			if r.State == sandbox.RequestPending { // only so many may wait
				if err := p.opts.Home.Requests().Answer(t.Context(), defaultName, sandbox.RequestAnswer{ID: r.ID, By: "the test"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		last := p.audited(t)
		if last.Action != "allow" || !strings.HasPrefix(last.By, "a person, vouched by client ") || !strings.HasSuffix(last.Message, ": it builds") {
			t.Errorf("%s: audited %+v", version, last)
		}
	}
}

// audited is the last line of the default sandbox's audit log about an answer.
func (p *playground) audited(t *testing.T) (last audit.Event) {
	t.Helper()
	st, err := p.opts.Home.Inspect(defaultName)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(st.Audit)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var e audit.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind == audit.AccessAnswer {
			last = e
		}
	}
	return last
}

// TestI15_OnlyTheFloorLetsClientsAsk: a client that would approve anything isn't asked unless the policy file says so, nor
// one that has no forms. The last is the twin.
func TestI15_OnlyTheFloorLetsClientsAsk(t *testing.T) {
	t.Parallel()
	yes := says("accept", m{"decision": "allow for an hour"})
	forms := &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{}}
	pages := &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{URL: &sdk.URLElicitationCapabilities{}}}
	for _, version := range []string{handshake, stateless} {
		for i, c := range []struct {
			floor string
			o     sdk.ClientOptions
			want  sandbox.RequestState
		}{
			{"", sdk.ClientOptions{ElicitationHandler: yes}, sandbox.RequestPending},
			{"[agent]\napprove = \"terminal\"\n", sdk.ClientOptions{ElicitationHandler: yes}, sandbox.RequestPending},
			{clientFloor, sdk.ClientOptions{}, sandbox.RequestPending},
			{clientFloor, sdk.ClientOptions{ElicitationHandler: yes, Capabilities: pages}, sandbox.RequestPending},
			{clientFloor, sdk.ClientOptions{ElicitationHandler: yes, Capabilities: forms}, sandbox.RequestApproved},
		} {
			p := serve(t, func(o *Options) { o.Floor = policy(t, c.floor) })
			p.says(t, false, "sandbox_exec", m{"command": "true"})
			text, failed := networkCall(t, overPipes(t, p.server, version, &c.o), m{"action": "request", "to": "a.example", "why": "x"})
			if r := p.newest(t); r.State != c.want || failed {
				t.Errorf("%s, %d: %+v: %s", version, i, r, text)
			}
		}
	}
}

// manual is a client without a session that does by hand what its SDK does: it can forge, swap and repeat.
type manual struct {
	*sdk.ClientSession
	p *playground
}

func newManual(t *testing.T, p *playground) manual {
	t.Helper()
	return manual{overPipes(t, p.server, stateless, &sdk.ClientOptions{
		ElicitationHandler: says("accept", nil), MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
	}), p}
}

// asks calls network and returns the state of the question.
func (c manual) asks(t *testing.T, args m) (state string) {
	t.Helper()
	r, err := c.CallTool(bounded(t), &sdk.CallToolParams{Name: "network", Arguments: args})
	if err != nil || !r.NeedsInput() || len(r.InputRequests) != 1 || len(r.Content) != 0 || r.RequestState == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	return r.RequestState
}

// brings calls network again with an answer that approves.
func (c manual) brings(t *testing.T, args m, state string) (text string, failed bool) {
	t.Helper()
	yes := &sdk.ElicitResult{Action: "accept", Content: m{"decision": "allow for an hour"}}
	return c.bringsAnswer(t, args, state, sdk.InputResponseMap{approvalKey: yes})
}

func (c manual) bringsAnswer(t *testing.T, args m, state string, answers sdk.InputResponseMap) (text string, failed bool) {
	t.Helper()
	r, err := c.CallTool(bounded(t), &sdk.CallToolParams{Name: "network", Arguments: args, RequestState: state, InputResponses: answers})
	if err != nil || len(r.Content) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	return r.Content[0].(*sdk.TextContent).Text, r.IsError
}

// TestI15_StatesOfQuestionsAreSealed: a state that is forged, swapped, repeated, too old or of another server approves
// nothing. The same call with its own state is the twin of each.
func TestI15_StatesOfQuestionsAreSealed(t *testing.T) {
	t.Parallel()
	p := serveAsking(t)
	p.says(t, false, "sandbox_create", m{"name": "other"})
	c := newManual(t, p)
	args := func(over m) m {
		a := m{"action": "request", "to": "a.example", "why": "x", "methods": []string{"GET"}}
		for key, value := range over {
			a[key] = value
		}
		return a
	}
	foreign := serveAsking(t)
	elsewhere := newManual(t, foreign).asks(t, args(nil))
	flipped := func(state string) string {
		raw, err := base64.RawURLEncoding.DecodeString(state)
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)-1] ^= 1
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	for what, c2 := range map[string]struct {
		over  m
		state func(own string) string
	}{
		"made up":         {nil, func(string) string { return "AAAA" }},
		"no base64":       {nil, func(own string) string { return own + "!" }},
		"long":            {nil, func(own string) string { return strings.Repeat(own, 100) }},
		"one bit":         {nil, flipped},
		"cut":             {nil, func(own string) string { return own[:len(own)-4] }},
		"another server":  {nil, func(string) string { return elsewhere }},
		"another sandbox": {m{"sandbox": "other"}, func(own string) string { return own }},
		"another host":    {m{"to": "b.example"}, func(own string) string { return own }},
		"another method":  {m{"methods": []string{"GET", "POST"}}, func(own string) string { return own }},
		"all methods":     {m{"methods": []string{}}, func(own string) string { return own }},
		"another reason":  {m{"why": "y"}, func(own string) string { return own }},
	} {
		own := c.asks(t, args(nil))
		id := p.newest(t).ID
		if text, failed := c.brings(t, args(c2.over), c2.state(own)); !failed || !strings.Contains(text, errState.Error()) {
			t.Errorf("%s: failed %v: %s", what, failed, text)
		}
		if r := p.newest(t); r.ID != id || r.State != sandbox.RequestPending {
			t.Errorf("%s: %+v", what, r)
		}
		text, failed := c.brings(t, args(nil), own) // the twin
		if r := p.newest(t); failed || r.ID != id || r.State != sandbox.RequestApproved {
			t.Errorf("%s, with its own state: %+v, %s", what, r, text)
		}
		if text, failed := c.brings(t, args(nil), own); !failed || !strings.Contains(text, errState.Error()) {
			t.Errorf("%s, repeated: failed %v: %s", what, failed, text)
		}
		if err := p.opts.Home.Requests().Answer(t.Context(), defaultName, sandbox.RequestAnswer{ID: id, By: "the test"}); err != nil { // taken back
			t.Fatal(err)
		}
	}

	// One that decided nothing is used too, and so is one without an answer.
	for _, answers := range []sdk.InputResponseMap{
		{approvalKey: &sdk.ElicitResult{Action: "accept", Content: m{"decision": "once"}}}, {approvalKey: &sdk.ElicitResult{Action: "accept", Content: m{"decision": true}}},
		nil, {"other": &sdk.ElicitResult{Action: "accept"}}, {approvalKey: &sdk.ElicitResult{Action: "cancel"}},
	} {
		own := c.asks(t, args(nil))
		if text, failed := c.bringsAnswer(t, args(nil), own, answers); failed || !strings.Contains(text, "Nothing is open yet") {
			t.Errorf("%v: failed %v: %s", answers, failed, text)
		}
		if text, failed := c.brings(t, args(nil), own); !failed || !strings.Contains(text, errState.Error()) {
			t.Errorf("%v, repeated: failed %v: %s", answers, failed, text)
		}
	}

	// Too old, and on the second before.
	var ahead atomic.Int64
	p.seals.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	own := c.asks(t, args(nil))
	r := p.newest(t)
	ahead.Store(int64(time.Until(r.Expires) + time.Second))
	if text, failed := c.brings(t, args(nil), own); !failed || !strings.Contains(text, errState.Error()) {
		t.Errorf("too old: failed %v: %s", failed, text)
	}
	ahead.Store(0)
	own = c.asks(t, args(nil))
	ahead.Store(int64(20 * time.Minute))
	if text, failed := c.brings(t, args(nil), own); failed {
		t.Errorf("not too old: %s", text)
	}
}

// TestI15_StatesServeOneClient: the server refuses a state from another client.
func TestI15_StatesServeOneClient(t *testing.T) {
	t.Parallel()
	k, err := newSeals()
	if err != nil {
		t.Fatal(err)
	}
	st, a := &sandbox.Status{Name: "default"}, &networkArgs{To: "a.example", Why: "x"}
	mine, err := about(st, a, vouched(&sdk.Implementation{Name: "a", Version: "1"}))
	if err != nil {
		t.Fatal(err)
	}
	again := *st
	again.Created = time.Unix(1, 0)
	others := map[string][]byte{}
	others["another client"], _ = about(st, a, vouched(&sdk.Implementation{Name: "b", Version: "1"}))
	others["another sandbox of that name"], _ = about(&again, a, vouched(&sdk.Implementation{Name: "a", Version: "1"}))
	state, ok := k.seal(mine, "aaaaaaaa", time.Now().Add(time.Minute))
	if !ok {
		t.Fatal("no state")
	}
	for what, other := range others {
		if id, err := k.open(other, state); !errors.Is(err, errState) {
			t.Errorf("%s: %q, %v", what, id, err)
		}
	}
	if id, err := k.open(mine, state); err != nil || id != "aaaaaaaa" {
		t.Errorf("its own: %q, %v", id, err)
	}
}

func TestI11_StatesOfQuestionsAreBounded(t *testing.T) {
	t.Parallel()
	k, err := newSeals()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	k.now = func() time.Time { return now }
	for i := range maxSealed {
		if _, ok := k.seal(nil, fmt.Sprint(i), now.Add(time.Minute)); !ok {
			t.Fatalf("no room for %d", i)
		}
	}
	if _, ok := k.seal(nil, "x", now.Add(time.Minute)); ok || len(k.until) != maxSealed {
		t.Errorf("%d are open", len(k.until))
	}
	now = now.Add(time.Minute)
	if _, ok := k.seal(nil, "x", now.Add(time.Minute)); !ok || len(k.until) != 1 {
		t.Errorf("%d are open, those that are over included", len(k.until))
	}
}

// TestI15_DeniedHostsAreNotAskedAgain: an agent can't ask a person until they give in.
func TestI15_DeniedHostsAreNotAskedAgain(t *testing.T) {
	t.Parallel()
	for _, version := range []string{handshake, stateless} {
		p := serveAsking(t)
		var asked atomic.Int64
		c := overPipes(t, p.server, version, &sdk.ClientOptions{ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			asked.Add(1)
			return says("decline", nil)(ctx, r)
		}})
		for _, host := range []string{"a.example", "a.example", "b.example"} {
			networkCall(t, c, m{"action": "request", "to": host, "why": "x"})
		}
		if asked.Load() != 2 {
			t.Errorf("%s: asked %d times", version, asked.Load())
		}
	}
}

// TestI15_DenialsQuietTheirOwnDestination: only a denial of the same destination within the hour, wherever it was given,
// keeps a person from being asked; for every sandbox, or an agent would ask for another one until somebody agrees.
func TestI15_DenialsQuietTheirOwnDestination(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		over m
		ago  time.Duration
		asks bool
	}{
		"the same":                {nil, quietAfterDenial - time.Minute, false},
		"other methods":           {m{"methods": []string{"PUT"}}, 0, false},
		"another reason":          {m{"why": "y"}, 0, false},
		"its port":                {m{"to": "a.example:443"}, 0, false},
		"another port":            {m{"to": "a.example:8443"}, 0, true},
		"another host":            {m{"to": "b.example"}, 0, true},
		"another sandbox":         {m{"sandbox": "other"}, 0, false},
		"a fresh sandbox":         {nil, 0, false},
		"a fresh one, later":      {nil, quietAfterDenial + time.Minute, true},
		"the same, an hour later": {nil, quietAfterDenial + time.Minute, true},
	} {
		p := serve(t, func(o *Options) {
			o.Floor = policy(t, "[agent]\napprove = \"client\"\nmay_request = [\"*.example\", \"*.example:8443\"]\n")
		})
		p.says(t, false, "sandbox_exec", m{"command": "true"})
		p.says(t, false, "sandbox_create", m{"name": "other"})
		client := newManual(t, p)
		args := m{"action": "request", "to": "a.example", "why": "x", "methods": []string{"GET"}}
		client.asks(t, args)
		if err := p.opts.Home.Requests().Answer(t.Context(), defaultName, sandbox.RequestAnswer{ID: p.newest(t).ID, By: "the test"}); err != nil {
			t.Fatal(err)
		}
		p.answeredAgo(t, c.ago)
		if strings.Contains(what, "fresh") {
			p.says(t, false, "sandbox_stop", m{"sandbox": defaultName, "remove": true}, "removed")
			p.says(t, false, "sandbox_exec", m{"command": "true"})
		}
		for key, value := range c.over {
			args[key] = value
		}
		r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: "network", Arguments: args})
		if err != nil || r.IsError || r.NeedsInput() != c.asks {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
}

// TestI17_DenialsOutliveTheirServer: an agent whose client starts the server again, or another one beside it, can't have a
// person asked again for what they denied for a sandbox that is gone, nor after as many refusals as ask nobody anything.
// The twins are a server that has no file of them, one with a damaged file, and one of another policy file.
func TestI17_DenialsOutliveTheirServer(t *testing.T) {
	t.Parallel()
	p := serveAsking(t)
	next := func(floor string) *playground {
		return serve(t, func(o *Options) {
			o.Home, o.Floor, o.Tools = p.opts.Home, policy(t, "[agent]\napprove = \"client\"\n"), p.opts.Tools
			o.Floor.Path = floor
		})
	}
	file := p.denials.path
	beside := next(p.opts.Floor.Path)
	for i := range maxRefused {
		p.denials.note(fmt.Sprintf("h%d.example:443", i), time.Now().Add(-time.Minute))
		if i == 0 {
			p.denials.note("old.example:443", time.Now().Add(-quietAfterDenial))
		}
		for what, other := range map[string]*playground{"beside": beside, "later": next(p.opts.Floor.Path)} {
			denied, tooMany := other.denials.lately("h0.example:443")
			if old, _ := other.denials.lately("old.example:443"); !denied || old || tooMany != (i == maxRefused-1) {
				t.Errorf("%s, %d: denied %v, too many %v, the old one %v", what, i, denied, tooMany, old)
			}
		}
	}
	open := func(what, floor string) {
		t.Helper()
		if denied, tooMany := next(floor).denials.lately("h0.example:443"); denied || tooMany {
			t.Errorf("%s: %v, %v", what, denied, tooMany)
		}
	}
	open("another policy file", "/other.toml")
	if err := os.WriteFile(file, []byte(`{"h0.example:443":"20`), 0o600); err != nil {
		t.Fatal(err)
	}
	open("a damaged file", p.opts.Floor.Path)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	open("no file", p.opts.Floor.Path)
	if denied, tooMany := p.denials.lately("h0.example:443"); !denied || !tooMany {
		t.Errorf("the server itself has forgotten: %v, %v", denied, tooMany)
	}
}

// TestI17_ServersNoteDenialsTogether: several servers note a denial at the same moment, and each denial is kept.
func TestI17_ServersNoteDenialsTogether(t *testing.T) {
	t.Parallel()
	for round := range 20 {
		path := filepath.Join(t.TempDir(), "denied")
		begin := make(chan struct{})
		var noting sync.WaitGroup
		for i := range maxRefused {
			server := &denials{path: path}
			noting.Go(func() {
				<-begin
				server.note(fmt.Sprintf("h%d.example:443", i), time.Now())
			})
		}
		close(begin)
		noting.Wait()
		later := &denials{path: path}
		for i := range maxRefused {
			if denied, _ := later.lately(fmt.Sprintf("h%d.example:443", i)); !denied {
				t.Fatalf("round %d: the denial of server %d is lost; there are %d of %d", round, i, len(later.at), maxRefused)
			}
		}
	}
}

// answeredAgo makes the only request of the default sandbox one that was answered so long ago.
func (p *playground) answeredAgo(t *testing.T, ago time.Duration) {
	t.Helper()
	path := filepath.Join(p.opts.Home.Dir(), "sandboxes", defaultName, "sandbox.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at, err := json.Marshal(p.newest(t).Answered)
	if err != nil {
		t.Fatal(err)
	}
	then, err := json.Marshal(time.Now().Add(-ago).UTC())
	if err != nil {
		t.Fatal(err)
	}
	changed := regexp.MustCompile(`("answered": *)`+regexp.QuoteMeta(string(at))).ReplaceAll(text, append([]byte("${1}"), then...))
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if since := time.Since(*p.newest(t).Answered); since < ago {
		t.Fatalf("answered %s ago", since)
	}
}

// TestI11_QuestionsInProgressAreBounded: where too many calls wait for persons, a request waits in the terminal alone.
func TestI11_QuestionsInProgressAreBounded(t *testing.T) {
	t.Parallel()
	p := serveAsking(t)
	c := overPipes(t, p.server, handshake, &sdk.ClientOptions{ElicitationHandler: says("accept", m{"decision": "allow once"})})
	for range maxAsking {
		p.asking <- struct{}{}
	}
	if text, failed := networkCall(t, c, m{"action": "request", "to": "a.example", "why": "x"}); failed || p.newest(t).State != sandbox.RequestPending {
		t.Errorf("one too many: failed %v: %s", failed, text)
	}
	<-p.asking
	for _, host := range []string{"b.example", "c.example"} { // the place is given back
		if text, failed := networkCall(t, c, m{"action": "request", "to": host, "why": "x"}); failed || p.newest(t).State != sandbox.RequestApproved {
			t.Errorf("%s: failed %v: %s", host, failed, text)
		}
	}
}

// TestI15_OnlyWhoMayAskAnswers: a state that comes back from a client which says that it can't ask anybody approves nothing.
// The twin is the client that can.
func TestI15_OnlyWhoMayAskAnswers(t *testing.T) {
	t.Parallel()
	yes := says("accept", nil)
	pages := &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{URL: &sdk.URLElicitationCapabilities{}}}
	for what, c := range map[string]struct {
		o    sdk.ClientOptions
		want sandbox.RequestState
	}{
		"no elicitation": {sdk.ClientOptions{}, sandbox.RequestPending},
		"pages alone":    {sdk.ClientOptions{ElicitationHandler: yes, Capabilities: pages}, sandbox.RequestPending},
		"forms":          {sdk.ClientOptions{ElicitationHandler: yes}, sandbox.RequestApproved},
	} {
		p := serveAsking(t)
		args := m{"action": "request", "to": "a.example", "why": "x"}
		state := newManual(t, p).asks(t, args)
		c.o.MultiRoundTrip = &sdk.MultiRoundTripOptions{Disabled: true}
		text, failed := manual{overPipes(t, p.server, stateless, &c.o), p}.brings(t, args, state)
		if r := p.newest(t); r.State != c.want || failed {
			t.Errorf("%s: %+v: %s", what, r, text)
		}
	}
}

// TestAnswersInATerminalEndQuestions: the client's dialog ends, and the call says what was answered.
func TestAnswersInATerminalEndQuestions(t *testing.T) {
	t.Parallel()
	p := serveAsking(t)
	c := overPipes(t, p.server, handshake, &sdk.ClientOptions{ElicitationHandler: func(ctx context.Context, _ *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		a := sandbox.RequestAnswer{ID: p.newest(t).ID, Approve: true, Lifetime: "hour", By: "alice", Reason: "by hand"}
		if err := p.opts.Home.Requests().Answer(ctx, defaultName, a); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	text, failed := networkCall(t, c, m{"action": "request", "to": "a.example", "why": "x"})
	if failed || !strings.Contains(text, "approved: by hand") {
		t.Errorf("failed %v: %s", failed, text)
	}
	if r := p.newest(t); r.By != "alice" {
		t.Errorf("%+v", r)
	}
}

// TestFailedQuestionsLeaveTheTerminal: their error is no answer.
func TestFailedQuestionsLeaveTheTerminal(t *testing.T) {
	t.Parallel()
	p := serveAsking(t)
	c := overPipes(t, p.server, handshake, &sdk.ClientOptions{ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		return nil, errBoom
	}})
	text, failed := networkCall(t, c, m{"action": "request", "to": "a.example", "why": "x"})
	if r := p.newest(t); failed || r.State != sandbox.RequestPending || !strings.Contains(text, "msb requests approve "+r.ID) {
		t.Errorf("failed %v: %+v: %s", failed, r, text)
	}
}

// TestSlowPersonsAnswerALongCall: a call that waits for a person goes on under a name, as any.
func TestSlowPersonsAnswerALongCall(t *testing.T) {
	t.Parallel()
	p := serveAsking(t)
	p.calls.patience = 0
	answer := make(chan struct{})
	c := overPipes(t, p.server, handshake, &sdk.ClientOptions{ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		<-answer
		return says("accept", m{"decision": "allow once"})(ctx, r)
	}})
	text, _ := networkCall(t, c, m{"action": "request", "to": "a.example", "why": "x"})
	if !strings.Contains(text, "call-1") {
		t.Fatal(text)
	}
	close(answer)
	p.calls.patience = time.Minute
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "job", Arguments: m{"action": "wait", "job": "call-1"}})
	if err != nil || !strings.Contains(r.Content[0].(*sdk.TextContent).Text, "approved") {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestI15_UnaskedResponsesGoNowhere: a client that answers what nobody asked approves nothing, and its connection goes on.
func TestI15_UnaskedResponsesGoNowhere(t *testing.T) {
	t.Parallel()
	c := &conn{asked: map[jsonrpc.ID]bool{}}
	for i := range maxAsked {
		if err := c.asks(outgoingCall(t, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.asks(outgoingCall(t, maxAsked)); err == nil {
		t.Error("no bound on calls to a client")
	}
	id := outgoingCall(t, 3).ID
	if !c.awaited(id) || c.awaited(id) || c.awaited(outgoingCall(t, 1000).ID) {
		t.Error("a response was taken twice, or to nothing")
	}
	if err := c.asks(&jsonrpc.Request{Method: "notifications/cancelled", Params: []byte(`{"requestId":4}`)}); err != nil || c.awaited(outgoingCall(t, 4).ID) {
		t.Errorf("a response to what was given up: %v", err)
	}
}

func outgoingCall(t *testing.T, n int) *jsonrpc.Request {
	t.Helper()
	id, err := jsonrpc.MakeID(float64(n))
	if err != nil {
		t.Fatal(err)
	}
	return &jsonrpc.Request{ID: id, Method: "elicitation/create"}
}

// TestI17_RefusedQuestionsAreBounded: an agent that goes on with other hosts doesn't get to ask until somebody agrees by
// mistake. The twin is a person who agrees each time.
func TestI17_RefusedQuestionsAreBounded(t *testing.T) {
	t.Parallel()
	for action, bounded := range map[string]bool{"decline": true, "cancel": true, "accept": false} {
		for _, version := range []string{handshake, stateless} {
			p := serveAsking(t)
			asked := 0
			c := overPipes(t, p.server, version, &sdk.ClientOptions{ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				asked++
				return says(action, m{"decision": "allow once"})(ctx, r)
			}})
			for i := range maxRefused + 4 {
				text, _ := networkCall(t, c, m{"action": "request", "to": fmt.Sprintf("h%d.example", i), "why": "x"})
				if quiet := strings.Contains(text, "doesn't ask them more"); quiet != (bounded && i >= maxRefused) {
					t.Errorf("%s, %s, %d: %s", action, version, i, text)
				}
				if r := p.newest(t); r.State == sandbox.RequestPending { // only so many may wait
					p.says(t, false, "sandbox_stop", m{"sandbox": defaultName, "remove": true}, "removed")
					p.says(t, false, "sandbox_exec", m{"command": "true"})
				}
			}
			if want := maxRefused; bounded && asked != want || !bounded && asked != want+4 {
				t.Errorf("%s, %s: asked %d times", action, version, asked)
			}
		}
	}
}
