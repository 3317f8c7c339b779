package dnsguard

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
)

func TestI5_ServiceRecordsAreCleaned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, rr string
		quic     bool
		want     []string
		removed  int
	}{
		{"ech goes", `1 . alpn="h2" ech="AAAA"`, false, []string{`1 . alpn="h2"`}, 0},
		{"h3 goes without quic", `1 . alpn="h3,h2"`, false, []string{`1 . alpn="h2"`}, 0},
		{"h3 drafts go too", `1 . alpn="h3-29,h3,h2"`, false, []string{`1 . alpn="h2"`}, 0},
		{"h3 stays with quic", `1 . alpn="h3,h2"`, true, []string{`1 . alpn="h3,h2"`}, 0},
		{"nothing but h3", `1 . alpn="h3"`, false, []string{`1 .`}, 0},
		{"nothing but h3, no default", `1 . alpn="h3" no-default-alpn`, false, nil, 0},
		{"private hint goes", `1 . ipv4hint="10.0.0.1,93.184.216.34"`, false, []string{`1 . ipv4hint="93.184.216.34"`}, 1},
		{"all hints go", `1 . alpn="h2" ipv4hint="127.0.0.1" ipv6hint="::1"`, false, []string{`1 . alpn="h2"`}, 2},
		{"mandatory ech", `1 . mandatory="ech" ech="AAAA"`, false, nil, 0},
		{"mandatory hint gone", `1 . mandatory="ipv4hint" ipv4hint="10.0.0.1"`, false, nil, 1},
		{"unknown key", `1 . alpn="h2" key65300="x"`, false, []string{`1 . alpn="h2"`}, 0},
		{"doh path", `1 . alpn="h2" dohpath="/q{?dns}"`, false, []string{`1 . alpn="h2"`}, 0},
		{"alias", `0 svc.example.`, false, []string{`0 svc.example.`}, 0},
		{"alias with parameters", `0 svc.example. alpn="h3,h2" ech="AAAA" ipv4hint="10.0.0.1,93.184.216.34"`, true, []string{`0 svc.example.`}, 0},
		{"alias inward", `0 localhost.`, false, nil, 0},
		{"target inward", `1 metadata.google.internal. alpn="h2"`, false, nil, 0},
	} {
		for _, kind := range []string{"HTTPS", "SVCB"} {
			t.Run(kind+" "+c.what, func(t *testing.T) {
				t.Parallel()
				judge := judgeOf("*.example")
				judge.quic = c.quic
				k := newKit(t, judge, records("svc.example. 300 IN "+kind+" "+c.rr))
				m, _ := k.ask(t, "svc.example", dns.StringToType[kind])
				if got := texts(m); m.Rcode != dns.RcodeSuccess || !slices.Equal(got, c.want) {
					t.Errorf("got %s %q, want %q", dns.RcodeToString[m.Rcode], got, c.want)
				}
				events := k.audit.kind(audit.DNSRebinding)
				if c.removed == 0 && len(events) != 0 || c.removed > 0 && (len(events) != 1 || len(events[0].DNS.Removed) != c.removed) {
					t.Errorf("removed %d, audited %+v", c.removed, events)
				}
			})
		}
	}
}

func TestHintsArePinned(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("svc.example"), records(`_8443._https.svc.example. 300 IN HTTPS 1 . ipv4hint="93.184.216.34" ipv6hint="2606:2800::1"`))
	k.ask(t, "_8443._https.svc.example", dns.TypeHTTPS)
	want := []netip.Addr{addr("93.184.216.34"), addr("2606:2800::1")}
	if got := k.Pins().Addrs(name("svc.example")); !slices.Equal(got, want) {
		t.Errorf("pinned: %v, want %v", got, want)
	}
}

func TestHintsGoWithoutIPv6(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("svc.example"), records(`svc.example. 300 IN HTTPS 1 . ipv6hint="2606:2800::1"`),
		func(c *Config) { c.HasIPv6 = func() bool { return false } })
	if m, _ := k.ask(t, "svc.example", dns.TypeHTTPS); !slices.Equal(texts(m), []string{"1 ."}) {
		t.Errorf("got %q", texts(m))
	}
	m, why := k.ask(t, "svc.example", dns.TypeAAAA)
	if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 || why.Outcome != OutcomeEmpty || k.auth.asked.Load() != 1 {
		t.Errorf("AAAA: %v, %+v", m, why)
	}
}
