package dnsguard

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
)

// internal are addresses that no public name may have, in every disguise.
var internal = []struct{ rr, addr string }{
	{"A 127.0.0.1", "127.0.0.1"},
	{"A 0.0.0.0", "0.0.0.0"},
	{"A 10.1.2.3", "10.1.2.3"},
	{"A 100.64.0.1", "100.64.0.1"},
	{"A 169.254.169.254", "169.254.169.254"},
	{"A 168.63.129.16", "168.63.129.16"},
	{"A 198.18.1.0", "198.18.1.0"},
	{"A 255.255.255.255", "255.255.255.255"},
	{"AAAA ::1", "::1"},
	{"AAAA ::", "::"},
	{"AAAA ::ffff:127.0.0.1", "::ffff:127.0.0.1"},
	{"AAAA ::127.0.0.1", "::127.0.0.1"},
	{"AAAA ::ffff:0:127.0.0.1", "::ffff:0:127.0.0.1"},
	{"AAAA 64:ff9b::7f00:1", "64:ff9b::7f00:1"},
	{"AAAA 64:ff9b::a9fe:a9fe", "64:ff9b::a9fe:a9fe"},
	{"AAAA 64:ff9b:1::7f00:1", "64:ff9b:1::7f00:1"},
	{"AAAA 2002:7f00:1::", "2002:7f00:1::"},
	{"AAAA fd00::1", "fd00::1"},
	{"AAAA fe80::1", "fe80::1"},
	{"AAAA fd00:ec2::254", "fd00:ec2::254"},
	{"AAAA ::ffff:93.184.216.34", "::ffff:93.184.216.34"},
	{"AAAA fd6d:7362:686f:7374::100", "fd6d:7362:686f:7374::100"},
}

func TestI5_InternalAddressesAreNotPinned(t *testing.T) {
	t.Parallel()
	for _, c := range internal {
		t.Run(c.rr, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, judgeOf("*.example"), records("evil.example. 300 IN "+c.rr))
			qtype := dns.StringToType[strings.Fields(c.rr)[0]]
			m, why := k.ask(t, "evil.example", qtype)
			code, text, ok := ede(m)
			if m.Rcode != dns.RcodeRefused || len(m.Answer) != 0 || !ok || code != dns.ExtendedErrorCodeBlocked || !strings.Contains(text, "rebinding") || !strings.Contains(text, "within") {
				t.Errorf("got %v", m)
			}
			if why.Outcome != OutcomeRebinding || !slices.Equal(why.Removed, []netip.Addr{addr(c.addr)}) {
				t.Errorf("explained as %+v", why)
			}
			if k.Pins().pinned(name("evil.example"), addr(c.addr)) || k.Pins().Names(addr(c.addr)) != nil {
				t.Error("the address is pinned")
			}
			events := k.audit.kind(audit.DNSRebinding)
			if len(events) != 1 || !slices.Equal(events[0].DNS.Removed, []string{addr(c.addr).String()}) || events[0].DNS.Name != "evil.example" {
				t.Errorf("audited as %+v", events)
			}
		})
	}
}

func TestI5_RebindingAnswersAreRefused(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	k := newKit(t, judgeOf("*.example"), func(w dns.ResponseWriter, m *dns.Msg) {
		answer := "93.184.216.34"
		if asked.Add(1) > 1 {
			answer = "127.0.0.1"
		}
		records(dns.CanonicalName(m.Question[0].Name)+" 0 IN A "+answer)(w, m)
	})
	m, _ := k.ask(t, "rebind.example", dns.TypeA)
	if !slices.Equal(texts(m), []string{"93.184.216.34"}) || m.Answer[0].Header().Ttl != 60 {
		t.Fatalf("first answer: %v", m)
	}
	m, why := k.ask(t, "rebind.example", dns.TypeA)
	if why.Cached {
		t.Error("an answer with TTL 0 was kept")
	}
	if m.Rcode != dns.RcodeRefused || len(m.Answer) != 0 {
		t.Errorf("second answer: %v", m)
	}
	if got := k.Pins().Addrs(name("rebind.example")); !slices.Equal(got, []netip.Addr{addr("93.184.216.34")}) {
		t.Errorf("pinned: %v", got)
	}
	if n := len(k.audit.kind(audit.DNSRebinding)); n != 1 {
		t.Errorf("%d dns.rebinding events, want 1", n)
	}
}

func TestI5_MixedAnswerKeepsWhatIsPublic(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("mixed.example"), records(
		"mixed.example. 300 IN A 10.0.0.1",
		"mixed.example. 300 IN A 93.184.216.34",
		"mixed.example. 300 IN A 127.0.0.1",
	))
	m, why := k.ask(t, "mixed.example", dns.TypeA)
	if !slices.Equal(texts(m), []string{"93.184.216.34"}) || len(why.Removed) != 2 {
		t.Errorf("got %v, removed %v", texts(m), why.Removed)
	}
	if got := k.Pins().Addrs(name("mixed.example")); !slices.Equal(got, []netip.Addr{addr("93.184.216.34")}) {
		t.Errorf("pinned: %v", got)
	}
	if n := len(k.audit.kind(audit.DNSRebinding)); n != 1 {
		t.Errorf("%d dns.rebinding events, want 1", n)
	}
	k.ask(t, "mixed.example", dns.TypeA)
	if n := len(k.audit.kind(audit.DNSRebinding)); n != 1 {
		t.Errorf("an answer from the cache was reported again")
	}
}

// TestTheFirstAliasIsFollowed: a name may have one alias (RFC 1034, section 3.6.2); of a second one nothing is given out.
func TestTheFirstAliasIsFollowed(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), records(
		"www.example. 300 IN CNAME one.example.", "www.example. 300 IN CNAME two.example.",
		"one.example. 300 IN A 93.184.216.34", "two.example. 300 IN A 93.184.216.35",
	))
	m, _ := k.ask(t, "www.example", dns.TypeA)
	if text := fmt.Sprint(m.Answer); !strings.Contains(text, "one.example") || strings.Contains(text, "two.example") {
		t.Errorf("the guest gets %v", m.Answer)
	}
	if pinned := k.Pins().Addrs(name("www.example")); slices.Contains(pinned, netip.MustParseAddr("93.184.216.35")) {
		t.Errorf("pinned is %v", pinned)
	}
}

// TestI6_PrivateReverseNamesStayInside: also where a rule names the zone.
func TestI6_PrivateReverseNamesStayInside(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.10.in-addr.arpa"), records("1.0.0.10.in-addr.arpa. 300 IN PTR router.example."))
	m, _ := k.ask(t, "1.0.0.10.in-addr.arpa", dns.TypePTR)
	if len(m.Answer) != 0 || k.auth.asked.Load() != 0 {
		t.Errorf("the guest gets %v; %d questions upstream", m.Answer, k.auth.asked.Load())
	}
}

func TestI5_CNAMEToInternalNameIsRefused(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"localhost.", "foo.localhost.", "metadata.google.internal.", "intranet."} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, judgeOf("*.example"), records(
				"www.example. 300 IN CNAME edge.cdn.example.",
				"edge.cdn.example. 300 IN CNAME "+target,
				target+" 300 IN A 93.184.216.34",
			))
			m, why := k.ask(t, "www.example", dns.TypeA)
			if m.Rcode != dns.RcodeRefused || len(m.Answer) != 0 || why.Outcome != OutcomeRebinding {
				t.Errorf("got %v, %+v", m, why)
			}
			if n := len(k.audit.kind(audit.DNSRebinding)); n != 1 {
				t.Errorf("%d dns.rebinding events, want 1", n)
			}
			if k.Pins().Addrs(name("www.example")) != nil {
				t.Error("something is pinned")
			}
		})
	}
}

func TestCNAMEChainsPinTheNameAsked(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("www.example"), records(
		"www.example. 300 IN CNAME edge.cdn.test.",
		"edge.cdn.test. 200 IN CNAME pop.cdn.test.",
		"pop.cdn.test. 100 IN A 93.184.216.34",
	))
	m, why := k.ask(t, "WWW.Example", dns.TypeA)
	want := []string{"edge.cdn.test.", "pop.cdn.test.", "93.184.216.34"}
	if !slices.Equal(texts(m), want) || why.TTL != 100*time.Second {
		t.Errorf("got %v, TTL %v", texts(m), why.TTL)
	}
	if got := k.Pins().Names(addr("93.184.216.34")); len(got) != 1 || got[0] != name("www.example") {
		t.Errorf("pinned to %v", got)
	}
}

func TestI11_CNAMELoopAndLongChainFail(t *testing.T) {
	t.Parallel()
	loop := func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		for _, line := range []string{"a.example. 9 IN CNAME b.example.", "b.example. 9 IN CNAME a.example."} {
			rr, _ := dns.NewRR(line)
			reply.Answer = append(reply.Answer, rr)
		}
		_ = w.WriteMsg(reply)
	}
	k := newKit(t, judgeOf("*.example"), loop)
	m, why := k.ask(t, "a.example", dns.TypeA)
	if code, _, _ := ede(m); m.Rcode != dns.RcodeServerFailure || code != dns.ExtendedErrorCodeInvalidData || why.Outcome != OutcomeFailed {
		t.Errorf("got %v", m)
	}
}

func TestI6_RecordsOutOfBailiwickStayBehind(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		add := func(section *[]dns.RR, line string) {
			rr, err := dns.NewRR(line)
			if err != nil {
				t.Error(err)
			}
			*section = append(*section, rr)
		}
		add(&reply.Answer, "bank.example. 300 IN A 93.184.216.66")
		add(&reply.Answer, "asked.example. 300 IN A 93.184.216.34")
		add(&reply.Answer, "asked.example. 300 IN TXT \"gift\"")
		add(&reply.Ns, "bank.example. 300 IN NS ns.evil.test.")
		add(&reply.Extra, "bank.example. 300 IN A 93.184.216.67")
		_ = w.WriteMsg(reply)
	})
	m, _ := k.ask(t, "asked.example", dns.TypeA)
	if !slices.Equal(texts(m), []string{"93.184.216.34"}) || len(m.Ns) != 0 || len(m.Extra) != 1 {
		t.Errorf("got %v", m)
	}
	if k.Pins().Addrs(name("bank.example")) != nil {
		t.Error("another name is pinned")
	}
	if names, _ := k.Pins().len(); names != 1 {
		t.Errorf("%d names are pinned", names)
	}
}

func TestI11_ThousandRecordAnswerIsCut(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		for i := range 1000 {
			hdr := dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}
			reply.Answer = append(reply.Answer, &dns.A{Hdr: hdr, A: []byte{93, 184, byte(i >> 8), byte(i)}})
		}
		reply.Compress = true
		if w.LocalAddr().Network() == "udp" {
			reply.Answer, reply.Truncated = nil, true
		}
		_ = w.WriteMsg(reply)
	})
	m, _ := k.ask(t, "many.example", dns.TypeA)
	if len(m.Answer) != maxRecords {
		t.Errorf("%d records were handed on, want %d", len(m.Answer), maxRecords)
	}
	for _, rr := range m.Answer {
		got, _ := netip.AddrFromSlice(rr.(*dns.A).A)
		if !k.Pins().pinned(name("many.example"), got) {
			t.Errorf("%v was handed out but isn't pinned", got)
		}
	}
}

func TestTXTAnswerIsBounded(t *testing.T) {
	t.Parallel()
	line := "big.example. 300 IN TXT \"" + strings.Repeat("x", 250) + "\""
	k := newKit(t, judgeOf("*.example"), func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		rr, _ := dns.NewRR(line)
		for range 60 {
			reply.Answer = append(reply.Answer, dns.Copy(rr))
		}
		if w.LocalAddr().Network() == "udp" {
			reply.Answer, reply.Truncated = nil, true
		}
		_ = w.WriteMsg(reply)
	})
	m, _ := k.ask(t, "big.example", dns.TypeTXT)
	if total := m.Len(); total > maxTXTBytes+512 || len(m.Answer) == 0 {
		t.Errorf("%d records, %d bytes", len(m.Answer), total)
	}
}

// TestI6_ForeignAuthorityStaysBehind: the SOA of a zone that the name isn't in, one of another
// class, and an invalid TTL (RFC 2181, section 8), say nothing about the name.
func TestI6_ForeignAuthorityStaysBehind(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		if m.Question[0].Qtype == dns.TypeA {
			hdr := dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1<<31 | 3600}
			reply.Answer = []dns.RR{&dns.A{Hdr: hdr, A: []byte{93, 184, 216, 34}}}
		} else {
			soa, _ := dns.NewRR("other.test. 300 IN SOA ns.other.test. h.other.test. 1 2 3 4 60")
			chaos, _ := dns.NewRR("a.example. 300 CH SOA ns.a.example. h.a.example. 1 2 3 4 60")
			reply.Ns = []dns.RR{soa, chaos}
		}
		_ = w.WriteMsg(reply)
	})
	if m, _ := k.ask(t, "a.example", dns.TypeTXT); len(m.Ns) != 0 {
		t.Errorf("the guest got %v", m.Ns)
	}
	if _, why := k.ask(t, "a.example", dns.TypeA); why.TTL != time.Minute {
		t.Errorf("the answer is good for %v, want the shortest time, a minute", why.TTL)
	}
}
