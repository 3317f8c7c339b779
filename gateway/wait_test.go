package gateway

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// noNames is a resolver that nobody has asked.
type noNames struct{}

func (noNames) Pinned(netip.Addr) []hostname.Name       { return nil }
func (noNames) Mapped(netip.Addr) (hostname.Name, bool) { return hostname.Name{}, false }

// TestI16_ReloadsReachWaitingFlows has a flow's denial wait for an approval. What a reload makes of it is the next step;
// without one the denial is.
func TestI16_ReloadsReachWaitingFlows(t *testing.T) {
	t.Parallel()
	rules := func(text string) *session.Rules {
		p, err := policies.Parse("test.toml", []byte("version = 1\n"+text), nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := session.NewRules(p, &egress.Classifier{})
		if err != nil {
			t.Fatal(err)
		}
		r.Approval = func(*egress.Flow, egress.Verdict) time.Duration { return time.Minute }
		return r
	}
	for name, tt := range map[string]struct {
		reloaded *session.Rules
		want     session.Action
	}{
		"no reload":           {nil, session.Reject},
		"one that allows it":  {rules("[egress]\ndefault = \"public\"\n"), session.Dial},
		"one that changes it": {rules(""), session.Reject},
	} {
		f := &flow{cancel: func(error) { t.Errorf("%s: it was ended", name) }}
		var step session.Step
		f.session, step = session.Open(rules(""), noNames{}, egress.TCP, netip.AddrPort{}, netip.MustParseAddrPort("93.184.215.14:22"))
		if step.Action != session.Wait {
			t.Fatalf("it doesn't wait: %s", step.Action)
		}
		if tt.reloaded != nil && f.revise(tt.reloaded) {
			t.Errorf("%s: ended", name)
		}
		x := tcpExecutor{flow: f, ctx: context.Background()}
		if next, more := x.do(&step); next.Action != tt.want || !more {
			t.Errorf("%s: %s, want %s", name, next.Action, tt.want)
		}
	}
}
