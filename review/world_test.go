package review_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/policies"
)

// settings are those of a case's gateway: its policy, the world's resolver, the card that its guest has.
func settings(t *testing.T, c *pcapgen.Case, w *wire, mac net.HardwareAddr) (*policies.Policy, func(*gateway.Config)) {
	t.Helper()
	p := policyOf(t, c)
	p.DNS.Servers = []policies.Server{{Kind: policies.ServerUDP, Addr: netip.MustParseAddrPort(gatewaytest.Resolver)}}
	return p, func(cfg *gateway.Config) {
		cfg.Link.GuestMAC, cfg.Link.Tap = mac, w
		if c.Script != "" {
			cfg.Link.MTU = netstack.LargeMTU // real guests have it
		}
	}
}

// macOf is whom a capture's first frame to the guest is for: the card as it was made. A real guest's is
// random.
func macOf(t *testing.T, file []byte) net.HardwareAddr {
	t.Helper()
	mac := pcapgen.GuestMAC // that of a guest that is answered nothing
	found := false
	eachFrame(t, file, func(dir capture.Direction, frame []byte, _ *capture.Headers, _ bool) {
		if !found && dir == capture.ToGuest && len(frame) >= 14 && frame[0]&1 == 0 {
			mac, found = slices.Clone(frame[:6]), true
		}
	})
	return mac
}

// fill gives the world the zone of a case, and makes what answered pings in its capture answer again.
func fill(t *testing.T, world *gatewaytest.Internet, file []byte, zone []string) {
	t.Helper()
	world.Record(zone...)
	eachFrame(t, file, func(dir capture.Direction, _ []byte, h *capture.Headers, ok bool) {
		if ok && dir == capture.ToGuest && h.Transport == capture.TransportPing && !h.Request {
			world.AnswerPings(h.Src.Addr())
		}
	})
}

// dialsAreLawful holds what was dialled against the case: where it isn't public, the policy opens it.
func dialsAreLawful(t *testing.T, c *pcapgen.Case, world *gatewaytest.Internet) {
	t.Helper()
	for _, dialled := range world.Dialled() {
		_, addr, _ := strings.Cut(dialled, " ")
		dst := netip.MustParseAddrPort(addr).Addr()
		if !egress.Classify(dst).Public() && !slices.Contains(c.Opens, dst.String()) {
			t.Errorf("%s was dialled, which is %s", dialled, egress.Classify(dst).Sentence())
		}
	}
}

// seenUpstream is where a golden file begins to say what the world saw.
const seenUpstream = "\nseen upstream:\n"

// upstream is what the world saw, in a form that does not depend on timing.
func upstream(world *gatewaytest.Internet) string {
	var b strings.Builder
	b.WriteString(seenUpstream)
	lines := world.Dialled()
	for _, name := range world.Asked() {
		lines = append(lines, "dns "+name)
	}
	slices.Sort(lines)
	for _, l := range slices.Compact(lines) {
		b.WriteString("  " + l + "\n")
	}
	return b.String()
}

// settle waits until the world saw what is wanted, or, where that is not known, nothing more for a while.
func settle(world *gatewaytest.Internet, want string) {
	limit := 60 * time.Second
	if want == "" {
		limit = 1500 * time.Millisecond
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); time.Now().Before(end); <-tick.C {
		if want != "" && upstream(world) == want {
			return
		}
	}
}
