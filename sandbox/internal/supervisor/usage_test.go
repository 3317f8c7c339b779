package supervisor

import (
	"testing"

	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
	"github.com/msb-project/msb/sandbox/internal/state"
)

func usageOf(t *testing.T, s *supervisor) *state.Usage {
	t.Helper()
	u, ok := s.Usage(t.Context()).(*state.Usage)
	if !ok {
		t.Fatal("no usage")
	}
	return u
}

func TestGatewayFiguresAreTakenOver(t *testing.T) {
	t.Parallel()
	u := gatewayUsage(&gateway.Stats{
		Clients: 2, Opened: 3, Denied: []gateway.DeniedCount{{Kind: "flow.open", Reason: "no_rule", Count: 4}},
		Link:       netstack.Stats{BytesFromGuest: 5, BytesToGuest: 6, TCPConnections: 7, UDPFlows: 8, Drops: map[frameguard.Reason]int64{"short": 9}, Limited: map[netstack.LimitKind]int64{netstack.LimitPings: 10}},
		EgressUsed: 11, EgressLimit: 12,
	})
	if u.Clients != 2 || u.Opened != 3 || u.Denied[0] != (state.DeniedUsage{Kind: "flow.open", Reason: "no_rule", Count: 4}) || u.BytesUp != 5 || u.BytesDown != 6 ||
		u.Flows != 15 || u.FramesDropped["short"] != 9 || u.Limits[string(netstack.LimitPings)] != 10 || u.EgressBytes != 11 || u.EgressLimit != 12 {
		t.Errorf("%+v", u)
	}
}
