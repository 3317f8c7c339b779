//go:build linux

package agentd

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/system"
)

// TestI18_CopiesNeedNewRandomness: without it a copy of a saved machine goes no further.
func TestI18_CopiesNeedNewRandomness(t *testing.T) {
	t.Parallel()
	broken := errors.New("no random device")
	if err := new(guest).renew(&agentpb.HandshakeRequest{}, nil); err == nil {
		t.Error("a copy without randomness goes on")
	}
	if err := new(guest).renew(&agentpb.HandshakeRequest{Entropy: make([]byte, 64)}, broken); !errors.Is(err, broken) {
		t.Errorf("a copy that can't be seeded: %v", err)
	}
}

// TestI18_SavedMachinesNeedNewRandomness to go on, and are not configured again.
func TestI18_SavedMachinesNeedNewRandomness(t *testing.T) {
	t.Parallel()
	g := &guest{hostname: "box", bundle: "/bundle"}
	req := &agentpb.HandshakeRequest{Resumed: true, Hostname: "other", Env: []string{"A=b"}, Trust: &agentpb.Trust{SetEnv: true}}
	if _, _, err := g.Configure(t.Context(), req); !errors.Is(err, errNoEntropy) {
		t.Errorf("without randomness: %v", err)
	}
	broken := errors.New("no random device")
	req.Entropy = make([]byte, 64)
	if _, _, err := g.goOn(req, broken); !errors.Is(err, broken) {
		t.Errorf("one that can't be seeded: %v", err)
	}
	if os.Getuid() != 0 {
		t.Skip("only root may add randomness")
	}
	env, warnings, err := g.Configure(t.Context(), req)
	if err != nil || len(warnings) > 0 || !slices.Contains(env, "HOSTNAME=box") || !slices.Contains(env, "SSL_CERT_FILE=/bundle") || !slices.Contains(env, "A=b") {
		t.Errorf("%q, %q, %v", env, warnings, err)
	}
}

// TestI12_NetworksAreCheckedFirst: of a handshake with one bad value nothing is configured.
func TestI12_NetworksAreCheckedFirst(t *testing.T) {
	t.Parallel()
	mac := []byte{2, 0, 0, 0, 0, 1}
	for what, n := range map[string]*agentpb.Network{
		"a short MAC":          {Mac: mac[:5]},
		"a long MAC":           {Mac: append(mac[:6:6], 0)},
		"no prefix":            {Mac: mac, Addresses: []string{"10.0.0.2"}},
		"no gateway's address": {Mac: mac, Gateways: []string{"10.0.0.1/24"}},
		"no server's address":  {Mac: mac, DnsServers: []string{"dns.example"}},
		"no host's address":    {Mac: mac, Hosts: []*agentpb.HostEntry{{Address: "", Names: []string{"a"}}}},
	} {
		if network, _, err := parseNetwork(&agentpb.HandshakeRequest{Network: n}); err == nil {
			t.Errorf("%s: %+v", what, network)
		}
	}
	if _, _, err := parseNetwork(&agentpb.HandshakeRequest{Network: &agentpb.Network{Mac: mac}}); err != nil { // the twin
		t.Error(err)
	}
}

// TestI11_WorkloadsLeaveThreads to the agent and the kernel: half of them.
func TestI11_WorkloadsLeaveThreads(t *testing.T) {
	t.Parallel()
	if l, all := workloadLimits(), system.ThreadLimit(); all == 0 || l.PIDs <= 0 || 2*l.PIDs > all || l.MemoryBytes <= 0 {
		t.Errorf("%+v of %d threads", l, all)
	}
}
