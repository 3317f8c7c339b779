package dnsguard

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

func mappings(names ...string) (list []policies.HostMapping) {
	for i, n := range names {
		list = append(list, policies.HostMapping{
			Name:   hostname.MustParse(n),
			Target: policies.Target{Addr: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(5000+i))},
		})
	}
	return list
}

func TestI5_HostsNamesGetStableAddresses(t *testing.T) {
	t.Parallel()
	judge := judgeOf("*.internal", "host")
	k := newKit(t, judge, nil, func(c *Config) { c.Policy.Hosts = mappings("registry.internal", "db.internal", "host") })
	want := map[string][2]string{
		"db.internal":       {"198.18.1.0", "fd6d:7362:686f:7374::100"},
		"host":              {"198.18.1.1", "fd6d:7362:686f:7374::101"},
		"registry.internal": {"198.18.1.2", "fd6d:7362:686f:7374::102"},
	}
	check := func(k *kit) {
		t.Helper()
		for n, addrs := range want {
			for i, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
				if m, why := k.ask(t, n, qtype); !slices.Equal(texts(m), []string{addrs[i]}) || why.Outcome != OutcomeLocal {
					t.Errorf("%s: got %v, want %s", n, texts(m), addrs[i])
				}
				mapped, ok := k.Mapped(addr(addrs[i]))
				if !ok || mapped != name(n) {
					t.Errorf("%s stands for %v", addrs[i], mapped)
				}
			}
			if m, _ := k.ask(t, n, dns.TypeTXT); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 {
				t.Errorf("%s TXT: %v", n, m)
			}
		}
	}
	check(k)
	for _, stranger := range []string{"198.18.0.0", "198.18.1.3", "198.19.255.255", "127.0.0.1", "fd6d:7362:686f:7374::103", "fd6d:7362:686f:7374:1::100"} {
		if _, ok := k.Mapped(addr(stranger)); ok {
			t.Errorf("%s is mapped", stranger)
		}
	}
	// After a reload the old names keep their addresses, a removed one loses
	// its, and a new one gets an address that nobody had.
	p := *k.Guard.epoch.Load().policy
	p.Hosts = mappings("aaa.internal", "registry.internal", "host")
	if err := k.reload(&p, judge); err != nil {
		t.Fatal(err)
	}
	delete(want, "db.internal")
	want["aaa.internal"] = [2]string{"198.18.1.3", "fd6d:7362:686f:7374::103"}
	check(k)
	if _, ok := k.Mapped(addr("198.18.1.0")); ok {
		t.Error("a removed name is still mapped")
	}
	if n := k.auth.asked.Load(); n != 0 {
		t.Errorf("%d questions went upstream", n)
	}
}

func TestMappedAddressesCoverTheRange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		place int
		v4    string
	}{{0, "198.18.1.0"}, {255, "198.18.1.255"}, {65535 - 256, "198.18.255.255"}, {65536 - 256, "198.19.0.0"}, {maxMapped - 1, "198.19.255.254"}} {
		if v4, v6 := mappedAddrs(c.place); v4 != addr(c.v4) || !mappedV6.Contains(v6) {
			t.Errorf("place %d: %v, %v, want %s", c.place, v4, v6, c.v4)
		}
	}
}

func TestReverseNames(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example", "*.in-addr.arpa", "*.ip6.arpa", "db.internal"), records(
		"api.example. 300 IN A 93.184.216.34",
		"api.example. 300 IN AAAA 2606:2800::1",
		"35.216.184.93.in-addr.arpa. 300 IN PTR elsewhere.example.",
	), func(c *Config) { c.Policy.Hosts = mappings("db.internal") })
	k.ask(t, "api.example", dns.TypeA)
	k.ask(t, "api.example", dns.TypeAAAA)
	asked := k.auth.asked.Load()
	for _, c := range []struct {
		addr  string
		rcode int
		want  []string
	}{
		{"93.184.216.34", dns.RcodeSuccess, []string{"api.example."}},
		{"2606:2800::1", dns.RcodeSuccess, []string{"api.example."}},
		{"198.18.1.0", dns.RcodeSuccess, []string{"db.internal."}},
		{"fd6d:7362:686f:7374::100", dns.RcodeSuccess, []string{"db.internal."}},
		{"10.0.0.1", dns.RcodeNameError, nil},
		{"127.0.0.1", dns.RcodeNameError, nil},
		{"169.254.169.254", dns.RcodeNameError, nil},
		{"fe80::1", dns.RcodeNameError, nil},
	} {
		reverse, _ := dns.ReverseAddr(c.addr)
		if m, _ := k.ask(t, reverse, dns.TypePTR); m.Rcode != c.rcode || !slices.Equal(texts(m), c.want) {
			t.Errorf("%s: %s %v, want %v", c.addr, dns.RcodeToString[m.Rcode], texts(m), c.want)
		}
	}
	if n := k.auth.asked.Load() - asked; n != 0 {
		t.Errorf("%d reverse questions went upstream", n)
	}
	if m, _ := k.ask(t, "35.216.184.93.in-addr.arpa", dns.TypePTR); !slices.Equal(texts(m), []string{"elsewhere.example."}) {
		t.Errorf("an allowed public one: %v", m)
	}
	for _, odd := range []string{"1.2.3.in-addr.arpa", "01.2.3.4.in-addr.arpa", "256.2.3.4.in-addr.arpa", "1.2.3.4.5.in-addr.arpa", "g.ip6.arpa", "in-addr.arpa"} {
		if a, ok := reverseAddr(name(odd)); ok {
			t.Errorf("%s was read as %v", odd, a)
		}
	}
}

func TestResolveJudgesLikeQuestions(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example", "db.internal"), records(
		"api.example. 300 IN A 93.184.216.34",
		"api.example. 300 IN AAAA 2606:2800::1",
		"evil.example. 300 IN A 127.0.0.1",
	), func(c *Config) { c.Policy.Hosts = mappings("db.internal") })
	got, err := k.Resolve(t.Context(), name("api.example"))
	if want := []netip.Addr{addr("93.184.216.34"), addr("2606:2800::1")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, a := range got {
		if !k.Pins().pinned(name("api.example"), a) {
			t.Errorf("%v is not pinned", a)
		}
	}
	if got, err := k.Resolve(t.Context(), name("db.internal")); err != nil || len(got) != 2 || got[0] != addr("198.18.1.0") {
		t.Errorf("mapped: %v, %v", got, err)
	}
	for n, want := range map[string]error{"evil.test": ErrRefused, "evil.example": ErrRefused, "none.example": errNoAddress, "localhost": ErrRefused} {
		if got, err := k.Resolve(t.Context(), name(n)); !errors.Is(err, want) || len(got) != 0 || !strings.Contains(err.Error(), n) {
			t.Errorf("%s: %v, %v, want %v", n, got, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Resolve(ended, name("later.example")); err == nil {
		t.Error("no error from an ended context")
	}
}

func TestI6_ReloadsDropPinsAndAnswers(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), records("a.example. 300 IN A 93.184.216.34", "b.example. 300 IN A 93.184.216.35"))
	k.ask(t, "a.example", dns.TypeA)
	k.ask(t, "b.example", dns.TypeA)
	k.setJudge(t, judgeOf("b.example"))
	if m, _ := k.ask(t, "a.example", dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("answered after the reload: %v", m)
	}
	if k.Pins().Addrs(name("a.example")) != nil || !k.Pins().pinned(name("b.example"), addr("93.184.216.35")) {
		t.Error("the pins are not those of the new judge")
	}
	if err := k.reload(nil, nil); !errors.Is(err, errConfig) {
		t.Errorf("a reload of nothing: %v", err)
	}
	if m, _ := k.ask(t, "b.example", dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("after the failed reload: %v", m)
	}
}

// TestI5_ServicesOfSpecialNamesStayHere: [hosts] may map a name that means the host, and the judge allows it then. Its
// services would be asked for upstream.
func TestI5_ServicesOfSpecialNamesStayHere(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("host.docker.internal", "db.corp.test"), nil, func(c *Config) {
		c.Policy.Hosts = mappings("host.docker.internal", "db.corp.test")
	})
	for name, want := range map[string]Outcome{
		"_pg._tcp.host.docker.internal": OutcomeRefusedName,
		"_pg._tcp.db.corp.test":         OutcomeNoName, // asked upstream, which has no such name
	} {
		if _, why := k.ask(t, name, dns.TypeSRV); why.Outcome != want {
			t.Errorf("%s: %s, want %s", name, why.Outcome, want)
		}
	}
}
