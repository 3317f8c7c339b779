package mcp

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// asks puts a request and returns its id.
func (p *playground) asks(t *testing.T, args m) string {
	t.Helper()
	args["action"] = "request"
	text := p.says(t, false, "network", args, "Nothing is open yet", "msb requests approve ")
	id := regexp.MustCompile(`^request ([a-z2-7]{8}) `).FindStringSubmatch(text)
	if id == nil {
		t.Fatalf("no id in %q", text)
	}
	return id[1]
}

// TestI15_ToolsAskAndPersonsAnswer: a request opens nothing, no call answers it, and what a person says comes back.
func TestI15_ToolsAskAndPersonsAnswer(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Floor = policy(t, "[agent]\nmay_request = [\"*.example\"]\n") })
	p.says(t, true, "network", m{"action": "request", "to": "api.example", "why": "x"}, "no such sandbox")
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	for _, c := range []struct {
		args m
		want string
	}{
		{m{"to": "api.example"}, "say why"}, {m{"to": "", "why": "x"}, "HOST:PORT"}, {m{"to": "https://api.example/", "why": "x"}, "HOST:PORT"},
		{m{"to": "api.other", "why": "x"}, "may_request of its [agent] does not hold api.other"}, {m{"to": "api.example:22", "why": "x"}, "does not hold api.example:22"},
		{m{"to": "*.example", "why": "x"}, "host: "}, {m{"to": "192.0.2.1:443", "why": "x"}, "is an address"}, {m{"to": "api.example", "why": strings.Repeat("x", 501)}, "a reason of 501 bytes"},
	} {
		c.args["action"] = "request"
		p.says(t, true, "network", c.args, c.want)
	}
	explain := m{"action": "explain", "to": "api.example:443"}
	for _, c := range []struct {
		answer sandbox.RequestAnswer
		failed bool
		words  []string
	}{
		{sandbox.RequestAnswer{Reason: "use the \x1b[2Jmirror"}, true, []string{"the operator denied api.example:443: use the ", "mirror; do without it"}},
		{sandbox.RequestAnswer{Approve: true, Lifetime: "hour"}, false, []string{"approved; api.example:443 is open to this sandbox for an hour"}},
	} {
		id := p.asks(t, m{"to": "api.example:443", "why": "the API"})
		p.says(t, false, "network", explain, `"action":"deny"`)
		c.answer.ID, c.answer.By = id, "alice"
		said := make(chan string)
		go func() {
			defer close(said)
			said <- p.says(t, c.failed, "network", m{"action": "answer", "request": id}, c.words...)
		}()
		if err := p.opts.Home.Requests().Answer(t.Context(), defaultName, c.answer); err != nil {
			t.Error(err)
		}
		if text := <-said; strings.Contains(text, "\x1b") {
			t.Errorf("it acts on terminals: %q", text)
		}
	}
	p.says(t, false, "network", explain, `"action":"allow"`)
	p.says(t, false, "network", m{"action": "answer"}, `"to":"api.example:443","state":"denied"`, `"state":"approved","for":"hour","until":"`)
	p.says(t, true, "network", m{"action": "answer", "request": "nosuch"}, "there is no request")
	p.says(t, true, "network", m{"action": "request", "to": "api.example", "why": "again"}, "allows it already")
	for _, tool := range append(p.tools(), p.moreTools()...) { // no word of a tool is an answer
		if strings.Contains(tool.properties, "approve") {
			t.Errorf("%s takes an approval", tool.name)
		}
	}
}

func TestRequestsSayWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	for state, want := range map[sandbox.RequestState]string{
		sandbox.RequestApproved: "", sandbox.RequestDenied: "denied a.example:443: not now", sandbox.RequestRevoked: "took a.example:443 back",
		sandbox.RequestExpired: "has expired", sandbox.RequestEnded: "the time of a.example:443 is over",
	} {
		_, err := answered(&sandbox.Request{Host: "a.example", Port: 443, State: state, Reason: "not now", Expires: time.Now()})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", state, err)
		}
	}
}

// TestI15_NarrowerFloorsBoundOlderSandboxes: what the policy file lets agents ask for is that of this server, not that of
// the day when the sandbox was made.
func TestI15_NarrowerFloorsBoundOlderSandboxes(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	p.asks(t, m{"to": "api.example", "why": "x"})
	narrow := serve(t, func(o *Options) { o.Home, o.Floor = p.opts.Home, policy(t, "[agent]\nmay_request = []\n") })
	narrow.opts.Floor.Path, narrow.family, narrow.label = p.opts.Floor.Path, p.family, p.label
	narrow.says(t, true, "network", m{"action": "request", "to": "b.example", "why": "x"}, "does not hold b.example")
}
