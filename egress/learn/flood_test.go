package learn

import (
	"testing"

	"github.com/msb-project/msb/audit"
)

func TestI11_MergedDenialsMakeNoRule(t *testing.T) {
	t.Parallel()
	c := New()
	c.Emit(audit.Event{Kind: audit.FlowOpen, Proto: "udp", Action: "deny", Reason: "no_rule", Count: 20_000})
	c.Emit(audit.Event{Kind: audit.DNSQuery, Proto: "udp", Action: "deny", Reason: "no_rule", Count: 8_000})
	c.Emit(audit.Event{Kind: audit.HTTPRequest, Proto: "tcp", Action: "deny", Reason: "path_not_allowed", Count: 1_000})
	if len(c.seen) != 0 || len(c.private) != 0 || len(c.notes) != 0 || c.over != 29_000 {
		t.Errorf("kept %v, %v, %v and %d beyond the bounds; want nothing and 29000", c.seen, c.private, c.notes, c.over)
	}
}
