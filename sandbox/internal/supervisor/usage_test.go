package supervisor

import (
	"reflect"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/secretproxy"
)

func usageOf(t *testing.T, s *supervisor) *state.Usage {
	t.Helper()
	u, ok := s.Usage(t.Context()).(*state.Usage)
	if !ok {
		t.Fatal("no usage")
	}
	return u
}

// TestGatewayFiguresAreTakenOver: each is another number, so that none stands in another's place.
func TestGatewayFiguresAreTakenOver(t *testing.T) {
	t.Parallel()
	got := gatewayUsage(&gateway.Stats{
		Clients: 1, Opened: 2, WouldDeny: 3, Denied: []gateway.DeniedCount{{Kind: "flow.open", Reason: "no_rule", Count: 4}},
		Link: netstack.Stats{
			BytesFromGuest: 5, BytesToGuest: 6, FramesFromGuest: 7, FramesToGuest: 8, TCPConnections: 9, UDPFlows: 100,
			Drops: map[frameguard.Reason]int64{"short": 10}, Limited: map[netstack.LimitKind]int64{"pings": 11},
		},
		DNS:        dnsguard.Stats{Queries: 12, Cached: 13, Refused: 14, Rebinding: 15, Failed: 16, Limited: 17},
		Proxy:      secretproxy.Stats{Requests: 18, Swaps: 19, Masked: 20, Violations: 21, Held: 22, Full: 23},
		EgressUsed: 24, EgressLimit: 25,
	})
	want := state.GatewayUsage{
		BytesUp: 5, BytesDown: 6, FramesUp: 7, FramesDown: 8, FramesDropped: map[string]int64{"short": 10}, Limits: map[string]int64{"pings": 11},
		Flows: 109, Clients: 1, Opened: 2, WouldDeny: 3, Denied: []state.DeniedUsage{{Kind: "flow.open", Reason: "no_rule", Count: 4}},
		DNS:      state.DNSUsage{Queries: 12, Cached: 13, Refused: 14, Rebinding: 15, Failed: 16, Limited: 17},
		Requests: 18, Swaps: 19, Masked: 20, Violations: 21, EgressBytes: 24, EgressLimit: 25, SecretMemory: 22, Full: 23,
	}
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, want %+v", *got, want)
	}
	for v := reflect.ValueOf(want); ; v = v.FieldByName("DNS") {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s is not compared", v.Type().Field(i).Name)
			}
		}
		if v.Type() == reflect.TypeFor[state.DNSUsage]() {
			break
		}
	}
}

// TestGuestsSayNothingImpossible: what a guest says of its memory is held to what it has.
func TestGuestsSayNothingImpossible(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says agentclient.Stats
		want state.GuestUsage
	}{
		{agentclient.Stats{MemoryTotalBytes: 100, MemoryAvailableBytes: 30, Processes: 4, OOMKills: 2}, state.GuestUsage{MemoryUsed: 70, Processes: 4, OOMKills: 2}},
		{agentclient.Stats{MemoryTotalBytes: 100, MemoryAvailableBytes: 100}, state.GuestUsage{}},
		{agentclient.Stats{MemoryTotalBytes: 100}, state.GuestUsage{MemoryUsed: 100}},
		{agentclient.Stats{MemoryTotalBytes: 100, MemoryAvailableBytes: 101, OOMKills: -1}, state.GuestUsage{}},
		{agentclient.Stats{MemoryTotalBytes: 100, MemoryAvailableBytes: -1}, state.GuestUsage{}},
		{agentclient.Stats{MemoryTotalBytes: 1 << 40}, state.GuestUsage{MemoryUsed: 128}},
	} {
		if got := guestFigures(c.says, 128); *got != c.want {
			t.Errorf("%+v: got %+v, want %+v", c.says, *got, c.want)
		}
	}
}

// TestUsageIsOfWhatASandboxHas: one with a network has its gateway's figures, one without has none.
func TestUsageIsOfWhatASandboxHas(t *testing.T) {
	t.Parallel()
	u := usageOf(t, callable(t, t.TempDir(), "web", "version = 1\n").supervisor)
	if u.Gateway == nil || u.Name != "web" || u.CPUs != 2 || u.Memory != 512<<20 || u.Running <= 0 || u.Resident == 0 || u.Guest != nil {
		t.Errorf("%+v", u)
	}
	s, info := superviseFake(t, &guestVM{}, newPlan(t, t.TempDir(), "shut"))
	if info == nil {
		t.Fatal(<-s.ended)
	}
	if u := usageOf(t, s.supervisor); u.Gateway != nil || u.Name != "shut" {
		t.Errorf("without a network: %+v", u)
	}
	s.cancel(errCallerGone)
	must(t, <-s.ended)
}
