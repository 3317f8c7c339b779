package supervisor

import (
	"slices"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI15_OnceEndsWithItsFirstFlow has a grant for once and one for an hour, and what the gateway writes of flows.
func TestI15_OnceEndsWithItsFirstFlow(t *testing.T) {
	t.Parallel()
	now := time.Now()
	until := now.Add(time.Hour)
	st := &state.Stored{Requests: []state.Request{
		{ID: "once2222", State: state.RequestApproved, Lifetime: state.ForOnce, Until: &until}, {ID: "hour2222", State: state.RequestApproved, Lifetime: state.ForHour, Until: &until},
	}}
	var a access
	a.saw(&audit.Event{Kind: audit.FlowClose, Flow: 1}) // before anything was granted
	a.begin(st)
	for _, e := range []audit.Event{
		{Kind: audit.FlowOpen, Flow: 1, Rule: "request once2222", Action: "deny"}, {Kind: audit.FlowClose, Flow: 1},
		{Kind: audit.FlowOpen, Flow: 2, Rule: "request hour2222", Action: "allow"}, {Kind: audit.FlowClose, Flow: 2},
		{Kind: audit.DNSQuery, Rule: "request once2222", Action: "allow"},
		{Kind: audit.FlowOpen, Flow: 3, Rule: "other", Action: "inspect"}, {Kind: audit.HTTPRequest, Flow: 3, Rule: "request once2222", Action: "deny"}, {Kind: audit.FlowClose, Flow: 3},
		{Kind: audit.FlowOpen, Flow: 4, Rule: "other", Action: "inspect"}, {Kind: audit.HTTPRequest, Flow: 4, Rule: "request once2222", Action: "inspect"},
		{Kind: audit.FlowOpen, Flow: 5, Rule: "request once2222", Action: "allow"},
	} {
		a.saw(&e)
	}
	if a.due(now) || len(a.wake) != 0 {
		t.Error("it is over before the flow that used it has ended")
	}
	a.saw(&audit.Event{Kind: audit.FlowClose, Flow: 4})
	a.saw(&audit.Event{Kind: audit.FlowClose, Flow: 5})
	if !a.due(now) || len(a.wake) != 1 {
		t.Error("nobody is woken when the flow that used it has ended")
	}
	over := a.take()
	if !slices.Contains(over, "once2222") || slices.Contains(over, "hour2222") || a.due(now) {
		t.Errorf("%v are over", over)
	}
	ended := st.Settle(now, over...)
	if len(ended) != 1 || ended[0].ID != "once2222" || len(a.used) != 0 {
		t.Errorf("%+v ended, %v is kept", ended, a.used)
	}
	a.again(over, now) // its end could not be written down
	if again := a.take(); len(again) != len(over) || len(a.take()) != 0 {
		t.Errorf("%v are over once more", again)
	}
	a.begin(st)
	if a.watches.Load() || !a.due(until) {
		t.Error("what is left is not followed")
	}
}
