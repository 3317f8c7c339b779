package dnsguard

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/policies"
)

// TestI6_InternalNamesReachNoUpstream asks under the policies that open the most, in every way a guest can.
func TestI6_InternalNamesReachNoUpstream(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"[egress]\ndefault = \"public\"\n",
		"[[egress.allow]]\nhosts = [\"*\"]\nprotocol = \"https\"\n",
		"[egress]\nmode = \"report\"\n",
		"[[egress.allow]]\nhosts = [\"*.arpa\"]\nprotocol = \"https\"\n",
	} {
		p, err := policies.Parse("test.toml", []byte("version = 1\n"+text), nil)
		if err != nil {
			t.Fatal(err)
		}
		engine, err := egress.New(p)
		if err != nil {
			t.Fatal(err)
		}
		k := newKit(t, nil, nil, func(c *Config) { c.Judge = engine })
		for _, n := range []string{
			"1.0.0.10.in-addr.arpa", "5.0-63.1.168.192.in-addr.arpa", "0-63.1.168.192.in-addr.arpa", "168.192.in-addr.arpa", "010.in-addr.arpa",
			"01.1.168.192.in-addr.arpa", "16.172.in-addr.arpa", "31.172.in-addr.arpa", "16-31.172.in-addr.arpa", "10.IN-ADDR.arpa",
			"d.f.ip6.arpa", "8.e.f.ip6.arpa", "_dns.resolver.arpa", "b._dns-sd._udp.0.0.16.172.in-addr.arpa",
			"db.internal", "a.b.corp", "_ldap._tcp.dc.corp", "nas.lan", "x.home", "_sip._tcp.pbx.lan",
		} {
			for _, qtype := range []uint16{dns.TypeA, dns.TypeSOA, dns.TypeNS, dns.TypePTR, dns.TypeSRV, dns.TypeTXT} {
				if m, why := k.ask(t, n, qtype); m.Rcode != dns.RcodeNameError || why.Verdict.Allowed() {
					t.Errorf("%q: %s %s: %s", text, n, dns.Type(qtype), dns.RcodeToString[m.Rcode])
				}
			}
		}
		if asked := k.auth.asked.Load(); asked != 0 {
			t.Errorf("%q: %d questions went upstream", text, asked)
		}
		k.ask(t, "8.8.in-addr.arpa", dns.TypeSOA) // the twin: a public zone is asked for
		if asked := k.auth.asked.Load(); asked != 1 {
			t.Errorf("%q: a public reverse zone was asked for %d times", text, asked)
		}
	}
}

func TestIPv6IsLookedForAgain(t *testing.T) {
	t.Parallel()
	has, now := hasGlobalIPv6(), time.Duration(0)
	p := &ipv6Probe{clock: func() time.Duration { return now }, known: true, has: !has}
	for _, c := range []struct {
		at   time.Duration
		want bool
	}{{0, !has}, {ipv6Age, !has}, {ipv6Age + 1, has}, {ipv6Age + 1, has}} {
		now = c.at
		if got := p.probe(); got != c.want {
			t.Errorf("after %v: %v, want %v", c.at, got, c.want)
		}
	}
}
