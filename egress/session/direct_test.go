package session

import (
	"net/netip"
	"testing"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// TestI1_PingsToMappedNamesSayWhy: a line of [hosts] opens ports only, so a ping is denied, and not with the reason that
// the line gives to what it allows.
func TestI1_PingsToMappedNamesSayWhy(t *testing.T) {
	t.Parallel()
	names := mappedNames{netip.MustParseAddr("198.18.0.2"), hostname.MustParse("in.corp.example")}
	for _, report := range []string{"", "[egress]\nmode = \"report\"\n"} {
		rules := rulesOf(t, report+"[hosts]\n\"in.corp.example\" = \"10.0.0.5\"\n")
		s, step := Open(rules, names, egress.ICMP, netip.AddrPortFrom(guestAddr.Addr(), 0), netip.MustParseAddrPort("198.18.0.2:0"))
		if v := s.Judged().Verdict; step.Action != Reject || v.Reason != egress.ReasonPort || v.WouldDeny {
			t.Errorf("%q: %v, %s", report, step.Action, v.Message())
		}
		if s, step := Open(rules, names, egress.TCP, guestAddr, netip.MustParseAddrPort("198.18.0.2:80")); step.Action == Reject {
			t.Errorf("%q: a connection (twin): %s", report, s.Judged().Verdict.Message())
		}
	}
}

// TestI5_PrivateTargetsBypassVia: targets inside are dialled directly. The upstream proxy leads outside, and doesn't learn
// of them.
func TestI5_PrivateTargetsBypassVia(t *testing.T) {
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

// TestI5_MappedAddressesAnswerNoPing: the address that the guest sees for a line of [hosts] is made up. A ping to it would
// reach whoever has it outside.
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

// TestI16_MappedAddressesKeepTheirName: an address of [hosts] is for the name that it was given out for, whatever a
// recording or a reload says.
func TestI16_MappedAddressesKeepTheirName(t *testing.T) {
	t.Parallel()
	const hosts = "[hosts]\n\"db.internal\" = \"127.0.0.1:5432\"\n\"web.internal\" = \"127.0.0.1:5432\"\n"
	rules := rulesOf(t, hosts)
	names := &mappedNames{netip.MustParseAddr("198.18.0.7"), hostname.MustParse("db.internal")}
	dst := netip.AddrPortFrom(names.addr, 5432)
	other := hostname.MustParse("web.example.com")
	s, step := OpenKnown(rules, names, guestAddr, dst, Known{App: egress.AppOpaque, Pinned: []hostname.Name{other}})
	if step.Action != Dial || s.Judged().Target.String() != "127.0.0.1:5432" {
		t.Errorf("recorded under another name: %s, %+v, want a dial", step.Action, s.Judged())
	}
	for name, want := range map[string]Action{"db.internal": Continue, "web.internal": End} {
		s, _ := Open(rules, names, egress.TCP, guestAddr, dst)
		s.Dialed(nil)
		later := mappedNames{names.addr, hostname.MustParse(name)}
		s.names = later
		if step := s.Revise(rulesOf(t, hosts)); step.Action != want {
			t.Errorf("the address stands for %s: %s, want %s", name, step.Action, want)
		}
	}
}

// TestI5_NobodyOpensAMappedAddress: an approval opens public addresses only, and a ping to an address of [hosts] doesn't
// wait for one.
func TestI5_NobodyOpensAMappedAddress(t *testing.T) {
	t.Parallel()
	const hosts = "[hosts]\n\"db.internal\" = \"127.0.0.1:5432\"\n"
	names := mappedNames{netip.MustParseAddr("198.18.0.7"), hostname.MustParse("db.internal")}
	approvable := func(policy string) *Rules {
		rules := rulesOf(t, policy)
		rules.Approval = func(*egress.Flow, egress.Verdict) time.Duration { return time.Hour }
		return rules
	}
	ruled := "[[egress.allow]]\nhosts = [\"db.internal\"]\nprotocol = \"tcp\"\nports = [5432]\n"
	s, step := Open(approvable(ruled+hosts), names, egress.TCP, guestAddr, netip.AddrPortFrom(names.addr, 22))
	if step.Action == Wait {
		step = s.Answer(true)
	}
	if step.Action != Reject {
		t.Errorf("another port than the rule's: %s, want %s", step.Action, Reject)
	}
	reported := approvable("[egress]\nmode = \"report\"\n" + ruled + hosts)
	if _, step := Open(reported, names, egress.ICMP, netip.AddrPortFrom(guestAddr.Addr(), 0), netip.AddrPortFrom(names.addr, 0)); step.Action != Reject {
		t.Errorf("a ping in report mode: %s, want %s", step.Action, Reject)
	}
}

// TestI5_OnlyTLSGoesByTheProxy: the upstream proxy is asked for connections that carry TLS.
func TestI5_OnlyTLSGoesByTheProxy(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, "[egress]\ndefault = \"public\"\n[tls]\nvia = \"http://192.0.2.1:3128\"\n")
	for _, tls := range []bool{true, false} {
		if _, step := Reopen(rules, known, known[webAddr][0], netip.AddrPortFrom(webAddr, 80), tls); step.Action != Dial || step.Via != tls {
			t.Errorf("TLS %v: %s, by the proxy: %v", tls, step.Action, step.Via)
		}
	}
}

// TestI5_RequestConnectionsCarryTheirNames: at an address of several names, only the host of the requests counts.
func TestI5_RequestConnectionsCarryTheirNames(t *testing.T) {
	t.Parallel()
	web, other := known[webAddr][0], hostname.MustParse("other.example.com")
	shared := pins{webAddr: {web, other}}
	rules := rulesOf(t, "[[egress.allow]]\nhosts = [\"web.example.com\", \"other.example.com\"]\n[[egress.deny]]\nhosts = [\"other.example.com\"]\n")
	for name, want := range map[hostname.Name]Action{web: Dial, other: Reject} {
		if _, step := Reopen(rules, shared, name, netip.AddrPortFrom(webAddr, 443), true); step.Action != want {
			t.Errorf("%s: %s, want %s", name, step.Action, want)
		}
	}
}

// TestI11_SpentBudgetsOpenNothing: each new flow is refused with the bound as the reason; before that it is dialled.
func TestI11_SpentBudgetsOpenNothing(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, "[egress]\ndefault = \"public\"\n")
	for _, spent := range []bool{false, true} {
		rules.Spent = func() bool { return spent }
		s, step := Open(rules, known, egress.UDP, guestAddr, netip.AddrPortFrom(webAddr, 4433))
		if refused := step.Action == Reject && s.Judged().Verdict.Reason == egress.ReasonLimit; refused != spent {
			t.Errorf("spent %v: %s, %v", spent, step.Action, s.Judged().Verdict)
		}
	}
}

// TestI5_MappedTargetsBypassVia: the target of a line of [hosts] is dialled directly: the upstream proxy leads outside.
func TestI5_MappedTargetsBypassVia(t *testing.T) {
	t.Parallel()
	names := mappedNames{netip.MustParseAddr("198.18.0.7"), hostname.MustParse("db.internal")}
	rules := rulesOf(t, "[tls]\nvia = \"http://192.0.2.1:3128\"\n[hosts]\n\"db.internal\" = \"127.0.0.1:5432\"\n")
	if _, step := Reopen(rules, names, names.name, netip.AddrPortFrom(names.addr, 443), true); step.Action != Dial || step.Via {
		t.Errorf("%s, by the proxy: %v; want dial without it", step.Action, step.Via)
	}
	if _, step := Open(rules, names, egress.TCP, guestAddr, netip.AddrPortFrom(names.addr, 443)); step.Via {
		t.Errorf("%s by the proxy", step.Action)
	}
}

// TestI6_ProxiedNamesMustBePinned: a recording that says a client asked the proxy for a name doesn't pin it to the address.
func TestI6_ProxiedNamesMustBePinned(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, webTLS)
	for _, host := range []hostname.Name{known[webAddr][0], hostname.MustParse("other.example.com")} {
		s, _ := OpenKnown(rules, known, guestAddr, netip.AddrPortFrom(webAddr, 443), Known{App: egress.AppTLS, Host: host, Proxied: true})
		if pinned := s.Judged().Flow.Pinned; len(pinned) == 0 || pinned[0] != known[webAddr][0] {
			t.Errorf("asked for %s: %v is pinned", host, pinned)
		}
	}
}

// TestI1_AnnouncementsGoNowhere: the guest is on no network that could get one, so that they are dropped under every policy, and
// not answered. The ports beside them are like any other.
func TestI1_AnnouncementsGoNowhere(t *testing.T) {
	t.Parallel()
	for text, reason := range map[string]egress.Reason{"[egress]\ndefault = \"public\"\n": egress.ReasonProtocol, "": egress.ReasonNoRule} {
		rules := rulesOf(t, text)
		for _, port := range []uint16{137, 138, 5353, 5355} {
			to := func(port uint16) netip.AddrPort {
				return netip.AddrPortFrom(netip.MustParseAddr("93.184.215.14"), port)
			}
			s, step := Open(rules, known, egress.UDP, guestAddr, to(port))
			if v := s.Judged().Verdict; step.Action != Drop || !step.Decided || v.Action != egress.Deny || v.Reason != reason {
				t.Errorf("%q: a datagram to port %d: %s, %s; want it dropped for %v", text, port, step.Action, v.Message(), reason)
			}
			if _, step := Open(rules, known, egress.TCP, guestAddr, to(port)); step.Action == Drop {
				t.Errorf("%q: a connection to port %d is dropped", text, port)
			}
		}
		for _, port := range []uint16{136, 139, 5352, 5354, 5356} {
			if _, step := Open(rules, known, egress.UDP, guestAddr, netip.AddrPortFrom(netip.MustParseAddr("93.184.215.14"), port)); step.Action == Drop {
				t.Errorf("%q: a datagram to port %d is dropped (twin)", text, port)
			}
		}
	}
}
