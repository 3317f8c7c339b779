package session

import (
	"net/netip"
	"testing"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// TestI5_PrivateTargetsNeverGoByTheProxy: the upstream proxy leads outside, and is not told of what is inside.
func TestI5_PrivateTargetsNeverGoByTheProxy(t *testing.T) {
	t.Parallel()
	const via = "[tls]\nvia = \"http://192.0.2.1:3128\"\n"
	for _, protocol := range []string{"tls", "https", "tcp"} {
		rules := rulesOf(t, via+"[[egress.allow]]\ncidrs = [\"10.0.0.0/8\", \"93.184.215.14/32\"]\nprivate = true\nprotocol = \""+protocol+"\"\nports = [443]\n")
		for addr, want := range map[string]bool{"10.0.0.1": false, "93.184.215.14": true} {
			s, step := Open(rules, known, egress.TCP, guestAddr, netip.AddrPortFrom(netip.MustParseAddr(addr), 443))
			if step.Action == NeedBytes {
				step = s.Data([]byte(clientHello("web.example.com")), More)
			}
			if step.Action != Dial || step.Via != want {
				t.Errorf("%s to %s: %s, by the proxy: %v; want dial and %v", protocol, addr, step.Action, step.Via, want)
			}
		}
	}
}

// mappedNames has one address that was given out for a line of [hosts].
type mappedNames struct {
	addr netip.Addr
	name hostname.Name
}

func (m mappedNames) Pinned(netip.Addr) []hostname.Name { return nil }

func (m mappedNames) Mapped(addr netip.Addr) (hostname.Name, bool) { return m.name, addr == m.addr }

// TestI5_MappedAddressesAnswerNoPing: an address of [hosts] stands for a port, and whoever has it outside is another.
func TestI5_MappedAddressesAnswerNoPing(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, "[hosts]\n\"db.internal\" = \"127.0.0.1:5432\"\n")
	names := mappedNames{netip.MustParseAddr("198.18.0.7"), hostname.MustParse("db.internal")}
	if _, step := Open(rules, names, egress.ICMP, netip.AddrPortFrom(guestAddr.Addr(), 0), netip.AddrPortFrom(names.addr, 0)); step.Action != Reject {
		t.Errorf("a ping: %s, want reject", step.Action)
	}
	if _, step := Open(rules, names, egress.UDP, guestAddr, netip.AddrPortFrom(names.addr, 5432)); step.Action != Dial {
		t.Errorf("a datagram: %s, want dial", step.Action)
	}
}
