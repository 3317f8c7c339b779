package gateway

import (
	"fmt"
	"testing"

	"github.com/msb-project/msb/audit"
)

func TestDenialsCountByKindAndReason(t *testing.T) {
	t.Parallel()
	var c tally
	for _, e := range []audit.Event{
		{Kind: audit.FlowOpen, Action: "deny", Reason: "no_rule"},
		{Kind: audit.FlowOpen, Action: "deny", Reason: "no_rule", Count: 41}, // a merged line
		{Kind: audit.DNSQuery, Action: "deny", Reason: "no_rule"},
		{Kind: audit.HTTPRequest, Action: "deny", Reason: "secret_violation"},
		{Kind: audit.SecretViolation, Action: "deny", Reason: "secret_violation"}, // counted by its request
		{Kind: audit.FlowOpen, Action: "allow", Reason: "rule"},
		{Kind: audit.FlowOpen, Action: "allow", Reason: "no_rule", WouldDeny: true},
		{Kind: audit.PortFlow, Action: "deny", Reason: "no_rule"},
		{Kind: audit.PortFlow, Action: "allow", Reason: "rule"},
		{Kind: audit.Limit, Action: "deny", Reason: "limit"},
		{Kind: audit.FlowClose},
		{Kind: audit.LinkDrop, Action: "deny"},
	} {
		c.count(&e)
	}
	var s Stats
	c.read(&s)
	want := []DeniedCount{{audit.DNSQuery, "no_rule", 1}, {audit.FlowOpen, "no_rule", 42}, {audit.HTTPRequest, "secret_violation", 1}, {audit.Limit, "limit", 1}, {audit.PortFlow, "no_rule", 1}}
	if fmt.Sprint(s.Denied) != fmt.Sprint(want) || s.Opened != 2 || s.WouldDeny != 1 {
		t.Errorf("%+v, want %+v", s, want)
	}
}

// TestI11_ReasonsToCountAreBounded: a reason that somebody made of foreign bytes would be a label of its own each.
func TestI11_ReasonsToCountAreBounded(t *testing.T) {
	t.Parallel()
	var c tally
	for i := range 10 * maxDeniedKeys {
		c.count(&audit.Event{Kind: audit.FlowOpen, Action: "deny", Reason: fmt.Sprint(i)})
	}
	var s Stats
	c.read(&s)
	var sum uint64
	for _, d := range s.Denied {
		sum += d.Count
	}
	if len(s.Denied) != maxDeniedKeys+1 || sum != 10*maxDeniedKeys {
		t.Errorf("%d reasons with %d denials, want %d with all", len(s.Denied), sum, maxDeniedKeys+1)
	}
}
