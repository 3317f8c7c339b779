package supervisor

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestOnlyWhoListensIsNamed: of a port that is taken, the sandbox is named that has it now, and no other.
func TestOnlyWhoListensIsNamed(t *testing.T) {
	t.Parallel()
	live := state.Identify(os.Getpid())
	earlier := live
	earlier.Start += "0" // another process had the number
	loopback := netip.MustParseAddr("127.0.0.1")
	port := func(host uint16, udp bool, at string) []state.Port {
		p := state.Port{Host: host, Guest: 80, UDP: udp}
		if at != "" {
			p.Address = netip.MustParseAddr(at)
		}
		return []state.Port{p}
	}
	for what, tt := range map[string]struct {
		run   state.RunRecord
		named bool
	}{
		"it listens":               {state.RunRecord{Supervisor: live, Info: &state.Info{ID: "web", Ports: port(8080, false, "")}}, true},
		"at that address":          {state.RunRecord{Supervisor: live, Info: &state.Info{ID: "web", Ports: port(8080, false, "127.0.0.1")}}, true},
		"at all addresses":         {state.RunRecord{Supervisor: live, Info: &state.Info{ID: "web", Ports: port(8080, false, "0.0.0.0")}}, true},
		"its supervisor was ended": {state.RunRecord{Supervisor: earlier, Info: &state.Info{ID: "web", Ports: port(8080, false, "")}}, false},
		"not ready":                {state.RunRecord{Supervisor: live}, false},
		"another port":             {state.RunRecord{Supervisor: live, Info: &state.Info{ID: "web", Ports: port(8081, false, "")}}, false},
		"another protocol":         {state.RunRecord{Supervisor: live, Info: &state.Info{ID: "web", Ports: port(8080, true, "")}}, false},
		"another address":          {state.RunRecord{Supervisor: live, Info: &state.Info{ID: "web", Ports: port(8080, false, "127.0.0.2")}}, false},
	} {
		home := t.TempDir()
		dir := filepath.Join(home, state.NamedDir, "web")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := state.WriteJSON(dir, state.InfoFile, tt.run); err != nil {
			t.Fatal(err)
		}
		if got := sandboxAt(home, netip.AddrPortFrom(loopback, 8080), false); (got == "sandbox web") != tt.named || !tt.named && got != "" {
			t.Errorf("%s: %q is named", what, got)
		}
		// Who wants all addresses can't have the one that is taken.
		all := tt.named || what == "another address"
		if got := sandboxAt(home, netip.AddrPortFrom(netip.IPv4Unspecified(), 8080), false); (got == "sandbox web") != all || !all && got != "" {
			t.Errorf("%s: %q is named for all addresses", what, got)
		}
	}
}
