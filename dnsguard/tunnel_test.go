package dnsguard

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// allowing returns a policy with a rule for each host.
func allowing(hosts ...string) *policies.Policy {
	p := policies.Default()
	p.DNS.Servers = []policies.Server{{Kind: policies.ServerUDP, Addr: netip.MustParseAddrPort(upstreamAddr)}}
	p.Limits.DNSPerSecond = 0
	for _, h := range hosts {
		p.Egress.Allow = append(p.Egress.Allow, policies.Rule{Name: h, Hosts: []hostname.Pattern{hostname.MustParsePattern(h)}})
	}
	return p
}

// longNames is how many names of drain fit into one zone's bytes, and some.
const longNames = tunnelBytes/180 + 20

func longName(i int) string {
	label := strings.Repeat("x", 56)
	return fmt.Sprintf("%s%04d.%s.%s.example", label, i, label+"yyyy", label+"zzzz")
}

// drain asks for so many long names and returns how many questions got out.
func (k *kit) drain(t *testing.T, from, count int) int64 {
	t.Helper()
	before := k.auth.asked.Load()
	for i := range count {
		k.ask(t, longName(from+i), dns.TypeTXT)
	}
	return k.auth.asked.Load() - before
}

// TestI11_RepeatedWildcardQuestionsAreMetered asks for few names by every type, where no answer can be kept.
func TestI11_RepeatedWildcardQuestionsAreMetered(t *testing.T) {
	t.Parallel()
	// Without a SOA, nobody may keep that there is nothing.
	k := newKit(t, judgeOf("*.example"), func(w dns.ResponseWriter, m *dns.Msg) { _ = w.WriteMsg(new(dns.Msg).SetReply(m)) }, wildcardPolicy("*.example"))
	types := []uint16{dns.TypeCNAME, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeMX, dns.TypeSRV, dns.TypeTXT, dns.TypePTR, dns.TypeNS, dns.TypeSOA}
	asked := 0
	for ; asked < tunnelQuestions+100; asked++ {
		k.ask(t, fmt.Sprintf("n%d.example", asked%5), types[asked%len(types)])
	}
	if n := k.auth.asked.Load(); n != tunnelQuestions {
		t.Errorf("%d of %d questions went upstream, want %d", n, asked, tunnelQuestions)
	}
	k.clock.advance(tunnelWindow)
	if m, _ := k.ask(t, "n0.example", dns.TypeTXT); m.Rcode != dns.RcodeSuccess {
		t.Errorf("in the next window: %v", m)
	}
}

// TestI11_AddressesBelowAWildcardAreKept: what a program asks for again and again, with a TTL of 0, uses nothing up.
func TestI11_AddressesBelowAWildcardAreKept(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), records("a.example. 0 IN A 93.184.216.34"), wildcardPolicy("*.example"))
	for range tunnelQuestions + 100 {
		if m, _ := k.ask(t, "a.example", dns.TypeA); len(m.Answer) != 1 {
			t.Fatalf("got %v", m)
		}
	}
	if n := k.auth.asked.Load(); n != 1 {
		t.Errorf("the upstream was asked %d times", n)
	}
}

// TestI11_FloorsMeterHoldsUnderAnyPolicy drains a floor's wildcard below policies that would meter nothing.
func TestI11_FloorsMeterHoldsUnderAnyPolicy(t *testing.T) {
	t.Parallel()
	exact := make([]string, 0, 2*longNames)
	for i := range 2 * longNames {
		exact = append(exact, longName(i))
	}
	public := allowing()
	public.Egress.Default = policies.DefaultPublic
	between := allowing("*")
	between.Floor = allowing("*.example")
	for text, p := range map[string]*policies.Policy{
		"star": allowing("*"), "names": allowing(exact...), "both": allowing(append(exact, "*", "*.example")...),
		"closer wildcard": allowing("*.yyyy.example", "*.example"), "public": public, "two floors": between,
	} {
		floor := allowing("*.example")
		if p == between {
			floor = allowing("*")
		}
		floored := *p
		if floored.Floor == nil {
			floored.Floor = floor
		} else {
			below := *floored.Floor
			below.Floor = floor
			floored.Floor = &below
		}
		k := newKit(t, judgeOf("*"), nil, func(c *Config) { c.Policy = &floored })
		if n := k.drain(t, 0, 2*longNames); n >= longNames {
			t.Errorf("%s: %d of %d questions went upstream", text, n, 2*longNames)
		}
	}
	// The twins: names without a floor and what "public" allows carry what any connection does.
	for text, p := range map[string]*policies.Policy{"names": allowing(exact...), "public": public} {
		k := newKit(t, judgeOf("*"), nil, func(c *Config) { c.Policy = p })
		if n := k.drain(t, 0, 2*longNames); n != 2*longNames {
			t.Errorf("%s without a floor: %d of %d questions went upstream", text, n, 2*longNames)
		}
	}
}

// TestI11_ReloadsKeepTheTunnelMeter reloads between questions: the same policy, another, and one without the wildcard.
func TestI11_ReloadsKeepTheTunnelMeter(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"*.example", "*"} {
		judge := judgeOf("*")
		k := newKit(t, judge, nil, func(c *Config) { c.Policy = allowing(host) })
		first := k.drain(t, 0, longNames)
		if first >= longNames {
			t.Fatalf("%s: all of %d questions went upstream", host, first)
		}
		floored := allowing("*.test")
		floored.Floor = allowing(host)
		for i, next := range []*policies.Policy{allowing(host), allowing(host, "other.test"), allowing("other.test"), allowing(host), floored} {
			if err := k.reload(next, judge); err != nil {
				t.Fatal(err)
			}
			if len(next.Egress.Allow) == 1 && next.Egress.Allow[0].Name == "other.test" {
				continue // nothing is below a wildcard there
			}
			if n := k.drain(t, 1000*(i+1), longNames); n > 0 {
				t.Errorf("%s: %d more questions went upstream after reload %d", host, n, i)
			}
		}
		k.clock.advance(tunnelWindow)
		if n := k.drain(t, 0, 10); n != 10 {
			t.Errorf("%s: %d of 10 questions went upstream in the next window", host, n)
		}
	}
}
