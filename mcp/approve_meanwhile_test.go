package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/sandbox"
)

// TestI15_WhatHappensWhileAPersonDecides: an answer in a terminal beats one in the client that comes later, and a sandbox
// that has gone gets nothing. The last is the twin.
func TestI15_WhatHappensWhileAPersonDecides(t *testing.T) {
	t.Parallel()
	for _, version := range []string{handshake, stateless} {
		for what, c := range map[string]struct {
			meanwhile func(t *testing.T, p *playground)
			say       m
			failed    bool
			state     sandbox.RequestState // "" if the sandbox is gone
			words     string
		}{
			"denied in a terminal": {func(t *testing.T, p *playground) {
				p.answers(t, sandbox.RequestAnswer{By: "me", Reason: "use the mirror"})
			}, m{"decision": "allow for an hour"}, true, sandbox.RequestDenied, "use the mirror"},
			"approved in a terminal": {func(t *testing.T, p *playground) {
				p.answers(t, sandbox.RequestAnswer{By: "me", Approve: true, Lifetime: "sandbox", Reason: "by me"})
			}, m{"decision": "allow once"}, false, sandbox.RequestApproved, "as long as the sandbox"},
			"its sandbox removed": {func(t *testing.T, p *playground) {
				st, err := p.own("", true)
				if err == nil {
					err = p.runner.stop(t.Context(), st)
				}
				if err == nil {
					err = p.only(st).Remove(t.Context(), st.Name)
				}
				if err != nil {
					t.Error(err)
				}
			}, m{"decision": "allow for an hour"}, true, "", ""},
			"nothing": {func(*testing.T, *playground) {}, m{"decision": "allow for an hour"}, false, sandbox.RequestApproved, "for an hour"},
		} {
			p := serveAsking(t)
			client := overPipes(t, p.server, version, &sdk.ClientOptions{ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				c.meanwhile(t, p)
				return says("accept", c.say)(ctx, r)
			}})
			text, failed := networkCall(t, client, m{"action": "request", "to": "a.example", "why": "x"})
			if failed != c.failed || !strings.Contains(text, c.words) {
				t.Errorf("%s, %s: failed %v: %s", version, what, failed, text)
			}
			if c.state == "" {
				if all, err := p.opts.Home.Requests().List(defaultName); err == nil {
					t.Errorf("%s, %s: %+v", version, what, all)
				}
				continue
			}
			if r := p.newest(t); r.State != c.state || (r.By == "me") != (what != "nothing") {
				t.Errorf("%s, %s: %+v", version, what, r)
			}
		}
	}
}

// answers answers the newest request as msb requests does.
func (p *playground) answers(t *testing.T, a sandbox.RequestAnswer) {
	t.Helper()
	a.ID = p.newest(t).ID
	if err := p.opts.Home.Requests().Answer(t.Context(), defaultName, a); err != nil {
		t.Error(err)
	}
}

// TestI15_QuestionsToPersonsAreTheseWords, of which the first decision opens nothing, and none is a default.
func TestI15_QuestionsToPersonsAreTheseWords(t *testing.T) {
	t.Parallel()
	const schema = `{"properties":{"decision":{"description":"What is open to this sandbox beside its policy","enum":["deny","allow once","allow for an hour","allow as long as the sandbox is there"],"title":"Decision","type":"string"},` +
		`"why":{"description":"For the audit log and the agent","maxLength":400,"title":"Why","type":"string"}},"required":["decision"],"type":"object"}`
	for how, methods := range map[string][]string{"": nil, " (GET)": {"GET"}, " (GET, POST)": {"GET", "POST"}} {
		q := questionAbout("web", &sandbox.Request{Host: "a.example", Port: 8443, Methods: methods, Why: "to \x1b build"})
		if want := "Sandbox web asks to reach https://a.example:8443" + how + `, which its policy denies. The agent gives as its reason: "to \x1b build"`; q.Message != want || q.Mode != "form" {
			t.Errorf("got %q, want %q", q.Message, want)
		}
		if got, err := json.Marshal(q.RequestedSchema); err != nil || string(got) != schema {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// TestLateQuestionsAreNotAsked: a call that was answered asks nothing more. The twin asks before.
func TestLateQuestionsAreNotAsked(t *testing.T) {
	t.Parallel()
	q := &sdk.ElicitParams{}
	var early, late human
	early.want(q, "state")
	if r := early.question(); r == nil || r.RequestState != "state" || r.InputRequests[approvalKey] != q {
		t.Errorf("%+v", r)
	}
	late.question()
	late.want(q, "state")
	if r := late.question(); r != nil {
		t.Errorf("%+v", r)
	}
}
