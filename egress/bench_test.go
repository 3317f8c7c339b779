package egress

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// manyRules is a policy of n rules: half by name, half by prefix, with every
// prefix inside two wider ones.
func manyRules(n int) *policies.Policy {
	p := policies.Default()
	add := func(r policies.Rule) {
		r.Name = fmt.Sprintf("rule %d", len(p.Egress.Allow))
		p.Egress.Allow = append(p.Egress.Allow, r)
	}
	https := []policies.PortRange{{First: 443, Last: 443}}
	add(policies.Rule{Hosts: patterns("api.github.com"), Ports: https, Protocol: policies.HTTPS, Methods: []string{"GET"}, Paths: []string{"/repos/acme/**"}})
	add(policies.Rule{Hosts: patterns("*.pypi.org"), Ports: https, Protocol: policies.HTTPS})
	add(policies.Rule{CIDRs: prefixes("20.0.0.0/6", "20.20.0.0/14"), Ports: []policies.PortRange{{First: 22, Last: 22}}, Protocol: policies.TCP})
	add(policies.Rule{CIDRs: prefixes("20.20.20.0/24"), Ports: []policies.PortRange{{First: 5432, Last: 5432}}, Protocol: policies.TCP})
	for i := len(p.Egress.Allow); i < n; i++ {
		if i%2 == 0 {
			add(policies.Rule{Hosts: patterns(fmt.Sprintf("h%d.zone%d.example", i, i%97)), Ports: https, Protocol: policies.HTTPS})
			continue
		}
		a := netip.AddrFrom4([4]byte{20, byte(20 + i>>16), byte(i >> 8), byte(i)})
		add(policies.Rule{CIDRs: []netip.Prefix{netip.PrefixFrom(a, 32)}, Ports: https, Protocol: policies.TCP})
	}
	p.Egress.Deny = []policies.Rule{{Name: "gists", Hosts: patterns("gist.github.com")}}
	return p
}

func patterns(s ...string) []hostname.Pattern {
	out := make([]hostname.Pattern, len(s))
	for i := range s {
		out[i] = hostname.MustParsePattern(s[i])
	}
	return out
}

func prefixes(s ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(s))
	for i := range s {
		out[i] = netip.MustParsePrefix(s[i])
	}
	return out
}

func names(s ...string) []hostname.Name {
	out := make([]hostname.Name, len(s))
	for i := range s {
		out[i] = hostname.MustParse(s[i])
	}
	return out
}

// hotFlows are what a sandbox does all day, each with the action that manyRules
// gives it.
func hotFlows() map[string]struct {
	f    Flow
	want Action
} {
	type c = struct {
		f    Flow
		want Action
	}
	gh := netip.MustParseAddrPort("140.82.112.5:443")
	return map[string]c{
		"connect by name":    {Flow{Proto: TCP, Dst: gh, Pinned: names("files.pypi.org")}, Inspect},
		"name":               {Flow{Proto: TCP, Dst: gh, Pinned: names("github.com", "files.pypi.org"), Name: hostname.MustParse("files.pypi.org"), Stage: StageName, App: AppTLS}, Inspect},
		"connect by address": {Flow{Proto: TCP, Dst: netip.MustParseAddrPort("20.20.20.77:22")}, Allow},
		"request":            {Flow{Proto: TCP, Dst: gh, Pinned: names("api.github.com"), Name: hostname.MustParse("api.github.com"), Stage: StageRequest, App: AppTLS, Method: "GET", Path: "/repos/acme/msb/issues"}, Allow},
		"denied by default":  {Flow{Proto: TCP, Dst: netip.MustParseAddrPort("93.184.215.14:80"), Pinned: names("www.example.com")}, Deny},
		"denied private":     {Flow{Proto: TCP, Dst: netip.MustParseAddrPort("[64:ff9b::a9fe:a9fe]:80")}, Deny},
	}
}

func TestDecideDoesNotAllocate(t *testing.T) {
	e := mustEngine(t, manyRules(1000))
	for name, c := range hotFlows() {
		var got Action
		if n := testing.AllocsPerRun(100, func() { got = e.Decide(&c.f).Action }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v", name, e.Decide(&c.f).Message(), c.want)
		}
	}
}

func mustEngine(t testing.TB, p *policies.Policy, opts ...Option) *Engine {
	t.Helper()
	e, err := New(p, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		e := mustEngine(b, manyRules(n))
		for name, c := range hotFlows() {
			b.Run(fmt.Sprintf("rules=%d/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if e.Decide(&c.f).Action != c.want {
						b.Fatal("wrong verdict")
					}
				}
			})
		}
	}
}
