package policies

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/hostname"
)

// flow is what the reference judge is asked about.
type flow struct {
	name         hostname.Name
	addr         netip.Addr
	port         uint16
	protocol     Protocol
	method, path string
}

// judge is the order of judgement in its plainest form: special ranges, deny
// rules, allow rules, default, then the floor. It stands in for package egress,
// which has the same test against its engine.
func judge(p *Policy, f flow) bool {
	matches := func(r Rule) bool { return judgeRule(r, f) }
	allowed := slices.ContainsFunc(p.Egress.Allow, matches)
	denied := slices.ContainsFunc(p.Egress.Deny, matches)
	_, special := specialWithin(netip.PrefixFrom(f.addr, f.addr.BitLen()))
	private := slices.ContainsFunc(p.Egress.Allow, func(r Rule) bool { return r.Private && judgeRule(r, f) })
	ok := !denied && (allowed || p.Egress.Default == DefaultPublic)
	ok = ok || p.Egress.Mode == Report
	ok = ok && (!special || private)
	return ok && (p.Floor == nil || judge(p.Floor, f))
}

func judgeRule(r Rule, f flow) bool {
	destination := len(r.Hosts)+len(r.CIDRs) == 0 ||
		slices.ContainsFunc(r.Hosts, func(h hostname.Pattern) bool { return h.Match(f.name) }) ||
		slices.ContainsFunc(r.CIDRs, func(c netip.Prefix) bool { return c.Contains(f.addr) })
	return destination &&
		(r.Protocol == Any || r.Protocol == f.protocol) &&
		(len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(p PortRange) bool { return p.Contains(f.port) })) &&
		(len(r.Methods) == 0 || slices.Contains(r.Methods, f.method)) &&
		(len(r.Paths) == 0 || slices.ContainsFunc(r.Paths, func(g string) bool { return MatchPath(g, f.path) }))
}

// some returns a random subset, in order.
func some[T any](random *rand.Rand, all ...T) []T {
	var out []T
	for _, v := range all {
		if random.IntN(2) == 0 {
			out = append(out, v)
		}
	}
	return out
}

func one[T any](random *rand.Rand, all ...T) T { return all[random.IntN(len(all))] }

func randomRule(random *rand.Rand) Rule {
	r := Rule{Protocol: one(random, Any, HTTPS, HTTP, TCP, UDP)}
	if random.IntN(2) == 0 {
		r.Hosts = some(random, hostname.MustParsePattern("a.example"), hostname.MustParsePattern("*.a.example"), hostname.MustParsePattern("*"))
	} else {
		r.CIDRs = some(random, netip.MustParsePrefix("8.8.8.0/24"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("8.8.8.8/32"))
		r.Private = random.IntN(2) == 0
	}
	r.Ports = some(random, PortRange{80, 80}, PortRange{400, 500})
	if r.Protocol == HTTPS {
		r.Methods = some(random, "GET", "POST")
		r.Paths = some(random, "/x/**", "/y")
	}
	return r
}

func randomPolicy(random *rand.Rand) *Policy {
	p := Default()
	p.Egress.Default = one(random, DefaultDeny, DefaultDeny, DefaultPublic)
	p.Egress.Mode = one(random, Enforce, Enforce, Report)
	for range random.IntN(4) {
		p.Egress.Allow = append(p.Egress.Allow, randomRule(random))
	}
	for range random.IntN(3) {
		p.Egress.Deny = append(p.Egress.Deny, randomRule(random))
	}
	p.Limits = Limits{1 + random.IntN(9), 1 + random.IntN(9), 1 + random.IntN(9), int64(random.IntN(3)), int64(random.IntN(3))}
	return p
}

func randomFlow(random *rand.Rand) flow {
	return flow{
		name:     one(random, hostname.Name{}, hostname.MustParse("a.example"), hostname.MustParse("x.a.example"), hostname.MustParse("b.example")),
		addr:     one(random, netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("8.8.8.9"), netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("127.0.0.1")),
		port:     one[uint16](random, 80, 443, 22),
		protocol: one(random, HTTPS, HTTP, TCP, UDP),
		method:   one(random, "GET", "POST", "DELETE"),
		path:     one(random, "/x/1", "/y", "/z"),
	}
}

// as is p with the mode that holds beside other: report only if both ask for it.
func as(p, other *Policy) *Policy {
	q := *p
	if other.Egress.Mode == Enforce {
		q.Egress.Mode = Enforce
	}
	return &q
}

// For random policies and flows: what the tightened policy allows, both allow,
// and the reverse.
func TestTightenedPolicyAllowsWhatBothAllow(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	allowed := 0
	for range 3000 {
		floor, second, p := randomPolicy(random), randomPolicy(random), randomPolicy(random)
		tight, err := Tighten(floor, p)
		if err != nil {
			t.Fatal(err)
		}
		tighter, err := Tighten(second, tight)
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			f := randomFlow(random)
			both := judge(as(floor, p), f) && judge(as(p, floor), f)
			switch got := judge(tight, f); {
			case got && !both:
				t.Fatalf("%+v is allowed by the tightened policy only\nfloor:\n%s\npolicy:\n%s", f, Encode(floor), Encode(p))
			case both && !got:
				t.Fatalf("%+v is allowed by both, and not by the tightened policy\nfloor:\n%s\npolicy:\n%s", f, Encode(floor), Encode(p))
			case got:
				allowed++
			}
			if judge(tighter, f) && (!both || !judge(as(second, tight), f)) {
				t.Fatalf("%+v passes two floors of which one shuts it", f)
			}
		}
		for _, l := range []struct{ floor, p, got int64 }{
			{int64(floor.Limits.TCPConnections), int64(p.Limits.TCPConnections), int64(tight.Limits.TCPConnections)},
			{floor.Limits.EgressBytes, p.Limits.EgressBytes, tight.Limits.EgressBytes},
			{floor.Limits.EgressRate, p.Limits.EgressRate, tight.Limits.EgressRate},
		} {
			if l.floor > 0 && (l.got == 0 || l.got > l.floor) || l.p > 0 && (l.got == 0 || l.got > l.p) {
				t.Fatalf("limit %d of %d and %d", l.got, l.floor, l.p)
			}
		}
	}
	if allowed < 1000 {
		t.Fatalf("only %d flows passed: the test says little", allowed)
	}
}

func TestTightenChangesNeitherArgument(t *testing.T) {
	t.Parallel()
	floor, p := parse(t, "[egress]\ndefault = \"public\"\n"), parse(t, "[egress]\nmode = \"report\"\n")
	before := string(Encode(floor)) + string(Encode(p))
	tight, err := Tighten(floor, p)
	if err != nil {
		t.Fatal(err)
	}
	if tight.Egress.Mode != Enforce || tight.Floor != floor {
		t.Errorf("%+v", tight)
	}
	if after := string(Encode(floor)) + string(Encode(p)); after != before || p.Floor != nil {
		t.Error("an argument was changed")
	}
}

func TestTightenRefusesUnnarrowableRules(t *testing.T) {
	t.Parallel()
	const web = "[[egress.allow]]\nname = \"web\"\nhosts = [\"a.example\"]\n"
	const token = "[secrets.T]\nfrom = \"env:T\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"
	for _, c := range []struct{ name, floor, policy, want string }{
		{"target", "", "[hosts]\n\"x.internal\" = \"127.0.0.1:1\"\n", "doesn't map"},
		{"another target", "[hosts]\n\"x.internal\" = \"127.0.0.1:2\"\n", "[hosts]\n\"x.internal\" = \"127.0.0.1:1\"\n", "doesn't map"},
		{"the same target under another name", "[hosts]\n\"y.internal\" = \"127.0.0.1:1\"\n", "[hosts]\n\"x.internal\" = \"127.0.0.1:1\"\n", "doesn't map"},
		{"same target", "[hosts]\n\"x.internal\" = \"127.0.0.1:1\"\n", "[hosts]\n\"x.internal\" = \"127.0.0.1:1\"\n", ""},
		{"resolver", "", "[dns]\nservers = [\"udp://10.0.0.1\"]\n", "doesn't ask udp://10.0.0.1:53"},
		{"same resolver", "[dns]\nservers = [\"udp://10.0.0.1\", \"system\"]\n", "[dns]\nservers = [\"udp://10.0.0.1\"]\n", ""},
		{"proxy", "", "[tls]\nvia = \"http://10.0.0.1:3128\"\n", "doesn't name this proxy"},
		{"bypass of all", "[tls]\ninspect = \"all\"\n", "[tls]\nbypass = [\"a.example\"]\n", "inspects everything"},
		{"bypass of a rule", web + "methods = [\"GET\"]\n", "[tls]\nbypass = [\"*.example\"]\n", "inspects names under"},
		{"bypass of paths", web + "paths = [\"/x/**\"]\n", "[tls]\nbypass = [\"a.example\"]\n", "inspects names under"},
		{"bypass of a denied path", "[egress]\ndefault = \"public\"\n[[egress.deny]]\nname = \"no\"\nhosts = [\"*.a.example\"]\npaths = [\"/admin/**\"]\n", "[tls]\nbypass = [\"*.a.example\"]\n", "inspects names under"},
		{"bypass beside", web + "paths = [\"/x/**\"]\n", "[tls]\nbypass = [\"b.example\"]\n", ""},
		{"bypass of what a rule has inspected", web + "[[egress.deny]]\nhosts = [\"b.example\"]\n", "[tls]\nbypass = [\"a.example\"]\n", "all https is inspected"},
		{"bypass of what nothing has inspected", web, "[tls]\nbypass = [\"a.example\"]\n", ""},
		{"same bypass", "[tls]\ninspect = \"all\"\nbypass = [\"*.a.example\"]\n", "[tls]\nbypass = [\"x.a.example\"]\n", ""},
		{"secret", "", web + token, "doesn't allow https to a.example"},
		{"allowed secret", web + token, web + token, ""},
		{"denied secret", "[egress]\ndefault = \"public\"\n[[egress.deny]]\nhosts = [\"a.example\"]\n", web + token, "doesn't allow https to a.example"},
		{"bypassed secret", web + "[tls]\nbypass = [\"a.example\"]\n", web + token, "keeps a.example from being inspected"},
	} {
		floor, p := parse(t, c.floor), parse(t, c.policy)
		tight, err := Tighten(floor, p)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err == nil || tight != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A floor that only reports loosens neither a policy that enforces nor one that stands over another that does.
func TestTightenEnforcesIfAnyDoes(t *testing.T) {
	t.Parallel()
	const report, enforce = "[egress]\nmode = \"report\"\n", ""
	for _, c := range []struct {
		below, floor, policy string // below is under the policy already; "none" for nothing
		want                 Mode
	}{
		{"none", report, report, Report},
		{"none", enforce, report, Enforce},
		{"none", report, enforce, Enforce},
		{report, report, report, Report},
		{enforce, report, report, Enforce},
	} {
		p := parse(t, c.policy)
		if c.below != "none" {
			p.Floor = parse(t, c.below)
		}
		out, err := Tighten(parse(t, c.floor), p)
		if err != nil {
			t.Fatal(err)
		}
		for at := out; at != nil; at = at.Floor {
			if at.Egress.Mode != c.want {
				t.Errorf("%+v: a level has mode %v, want %v", c, at.Egress.Mode, c.want)
			}
		}
	}
}

// TestTightenInspectsIfEitherDoes tries every pair.
func TestTightenInspectsIfEitherDoes(t *testing.T) {
	t.Parallel()
	order := []string{"none", "auto", "all"}
	for i, floor := range order {
		for j, own := range order {
			tight, err := Tighten(parse(t, "[tls]\ninspect = \""+floor+"\"\n"), parse(t, "[tls]\ninspect = \""+own+"\"\n"))
			if err != nil {
				t.Fatal(err)
			}
			if got := tight.TLS.Inspect.String(); got != order[max(i, j)] {
				t.Errorf("%s under %s is %s, want %s", own, floor, got, order[max(i, j)])
			}
		}
	}
}

func TestTightenTakesFloorResolversAndProxy(t *testing.T) {
	t.Parallel()
	floor := parse(t, "[dns]\nservers = [\"tls://192.0.2.1#dns.example\"]\nmin_ttl = \"10s\"\nmax_ttl = \"5m\"\n[tls]\nvia = \"http://proxy.example:3128\"\ninspect = \"all\"\n")
	tight, err := Tighten(floor, parse(t, "[tls]\ninspect = \"none\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if tight.DNS.Servers[0].Kind != ServerTLS || tight.DNS.MinTTL != floor.DNS.MinTTL || tight.DNS.MaxTTL != floor.DNS.MaxTTL || tight.TLS.Via != floor.TLS.Via || tight.TLS.Inspect != InspectAll {
		t.Errorf("%+v %+v", tight.DNS, tight.TLS)
	}
}
