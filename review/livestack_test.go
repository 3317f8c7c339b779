package review_test

import (
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/review"
)

// shares are how many frames of a capture the stack was asked for, and how many no stack makes.
type shares struct{ spoken, injected int }

// injected are the generated cases with frames that no ordinary stack makes. In every other case the stack
// does all by itself. Of recorded guests it doesn't make ARP, neighbour discovery and DHCP again, which are
// about their own start, nor what they spoofed and traced.
var injected = map[string]shares{
	"addr-loopback":         {9, 3},  // 0.0.0.0
	"addr-loopback6":        {3, 3},  // ::
	"addr-mapped":           {6, 6},  // a socket would send to these as IPv4
	"addr-special4":         {21, 9}, // groups and the broadcast address
	"addr-special6":         {12, 6}, // groups
	"icmp-redirect":         {0, 4},
	"icmp6-redirect":        {0, 5},
	"ip-fragment-flood":     {0, 300},
	"ip-fragments":          {0, 7}, // broken on purpose
	"ip-groups":             {0, 9},
	"ip-lies":               {0, 9},
	"ip-multicast":          {0, 5}, // groups, at the gateway's MAC
	"ip-options":            {0, 4},
	"ip-protocols":          {0, 3},
	"ip-tunnels":            {0, 5},
	"ip6-extensions":        {0, 5},
	"ip6-fragments":         {0, 8},
	"ip6-hop-by-hop-flood":  {1, 200},
	"ip6-lies":              {1, 7},
	"link-arp":              {0, 4},
	"link-ethertypes":       {0, 5},
	"link-ndp":              {0, 6},
	"link-oversized":        {2, 1}, // beyond what a link carries
	"link-rogue-dhcp":       {0, 20},
	"link-rogue-ra":         {0, 2},
	"link-short":            {0, 14},
	"link-source-ip":        {0, 4},
	"link-source-ip6":       {1, 7},
	"link-source-mac":       {0, 3},
	"ping-of-death":         {0, 46},
	"rst-fin-storm":         {0, 40}, // of connections that never were
	"tcp-data-in-syn":       {1, 1},  // after a lookup
	"tcp-odd-flags":         {0, 4},
	"tcp-simultaneous-open": {1, 3}, // a SYN that answers a SYN
	"tcp-urgent":            {1, 5}, // after a lookup
	"tls-out-of-order":      {1, 6}, // after a lookup
	"tls-overlap":           {1, 7}, // after a lookup
}

// TestI5_AttackSuiteOnALiveStack has a TCP/IP stack do what the guest of each capture did. What the
// world sees must be what it sees of the replayed frames, and each flow of the stack must have the verdict
// that the review gives.
func TestI5_AttackSuiteOnALiveStack(t *testing.T) {
	ofEachCase(t, func(t *testing.T, c *pcapgen.Case, file []byte, zone []string) (compared int64) {
		want := seenByReplay(t, c)
		guest := startLiveGuest(t, c, file, zone)
		guest.play(file, guest.say)
		guest.finish()
		guest.alive()
		settle(guest.Internet, want)
		guest.leave()
		guest.sharesAre(c)
		if !c.Timed {
			compared = guest.judgedAs(reviewed(t, c, file))
		}
		dialsAreLawful(t, c, guest.Internet)
		if got := upstream(guest.Internet); got != want {
			t.Errorf("of a live stack was%sof its replayed frames%s", got, want)
		}
		return compared
	})
}

// seenByReplay is what the golden file of a case says that the world sees.
func seenByReplay(t *testing.T, c *pcapgen.Case) string {
	t.Helper()
	golden, err := os.ReadFile(filepath.Join(directory, c.Name+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(golden), seenUpstream)
	if at < 0 {
		t.Fatalf("the golden file of %s does not say what is seen upstream; go test ./review -update rewrites it", c.Name)
	}
	return string(golden[at:])
}

// sharesAre fails a case that does nothing, or that leaves to raw frames what a stack can do.
func (g *liveGuest) sharesAre(c *pcapgen.Case) {
	g.t.Helper()
	got, want := g.shares, injected[c.Name]
	switch {
	case (c.Script != "" || c.Spoken) && got.spoken > 0: // another recording has other numbers
	case want == shares{} && got.spoken > 0 && got.injected == 0:
	case want != shares{} && got == want:
	default:
		g.t.Errorf("the stack made %d frames and %d were put beside it, want %d and %d (none at all: all by the stack)",
			got.spoken, got.injected, want.spoken, want.injected)
	}
}

// alive shows that the gateway still serves the stack.
func (g *liveGuest) alive() {
	g.t.Helper()
	g.ping(pcapgen.Gateway4, []byte("alive"), true)
	question, err := new(dns.Msg).SetQuestion("alive.invalid.", dns.TypeA).Pack()
	if err != nil {
		g.t.Fatal(err)
	}
	resolver := connection{alivePort, netip.AddrPortFrom(pcapgen.Gateway4, 53)}
	// As clients do, it asks again: after a flood the table of flows needs a moment.
	for end := time.Now().Add(replayWait); time.Now().Before(end); {
		g.datagram(resolver, question)
		if g.waitFor(time.Second, func() bool { return g.got[alivePort] > 0 }) {
			return
		}
	}
	g.t.Error("the gateway no longer answers questions")
}

// judgedAs holds the gateway's verdicts against the review's. What the stack did itself must have one, unless
// the frame guard took it for nobody's packet.
func (g *liveGuest) judgedAs(r *review.Report) (compared int64) {
	g.t.Helper()
	verdicts := opened(g.Audit)
	for f := range g.whole(r) {
		flow := ends{f.Proto, f.Src.Port(), f.Dst}
		at, own := g.own[flow]
		if _, ok := verdicts[flow]; !ok && own && !g.dropped[at] && !refusedByName(g.Audit, &f) {
			g.t.Errorf("the gateway has no verdict on a flow from port %d to %v", flow.srcPort, flow.dst)
		}
	}
	return compare(g.t, g.Audit, g.whole(r))
}

// whole are the flows of a review that have what decides. A capture may end in the middle of a connection;
// a live client completes its handshake and leaves in order, which says more.
func (g *liveGuest) whole(r *review.Report) iter.Seq[review.Flow] {
	return func(yield func(review.Flow) bool) {
		for f := range r.Flows() {
			if f.Verdict != nil && f.Verdict.Action != review.Undecided && !yield(f) {
				return
			}
		}
	}
}

// refusedByName: what the gateway's proxy is asked for by a name that no rule allows has no address and so no
// flow. Its verdict is the name's.
func refusedByName(log *gatewaytest.Recorder, f *review.Flow) bool {
	return f.Dst.Port() == gateway.ProxyPort && slices.ContainsFunc(log.Events(audit.DNSQuery), func(e audit.Event) bool {
		return e.Action == f.Verdict.Action && e.Reason == f.Verdict.Reason && strings.HasPrefix(f.ProxyTarget, e.DNS.Name+":")
	})
}
