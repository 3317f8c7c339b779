package egress

import (
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

const plainRules = `
[[egress.allow]]
name = "cdn"
hosts = ["*.cdn.example"]
[[egress.allow]]
name = "opaque"
hosts = ["opaque.example"]
protocol = "tls"
[[egress.allow]]
name = "range"
cidrs = ["93.184.216.0/24"]
protocol = "https"
ports = [443, 8443]
[hosts]
"in.corp.example" = "10.0.0.1"
`

const bypassPinned = `[tls]
bypass = ["pinned.cdn.example"]
`

// A rule that needs the Host of each request changes how https to all other names is judged. The cases say how.
func TestI7_RulesOnNamesHaveHTTPSInspected(t *testing.T) {
	t.Parallel()
	const at, ranged, inside = "tcp 93.184.215.14:443", "tcp 93.184.216.1:8443", "tcp 198.18.0.2:9000"
	www, hidden := pinned("www.cdn.example"), pinned("pinned.cdn.example")
	sni := said(AppTLS, "www.cdn.example")
	corp := mapped("in.corp.example")
	for name, rule := range map[string]string{
		"deny by name":             "[[egress.deny]]\nhosts = [\"evil.example\"]\n",
		"deny by name at a port":   "[[egress.deny]]\nhosts = [\"evil.example\"]\nports = [22]\n",
		"deny below a name":        "[[egress.deny]]\nhosts = [\"*.evil.example\"]\nprotocol = \"https\"\n",
		"deny of requests":         "[[egress.deny]]\ncidrs = [\"8.8.8.8/32\"]\nmethods = [\"PUT\"]\n",
		"allow of methods":         "[[egress.allow]]\nhosts = [\"api.example\"]\nmethods = [\"GET\"]\n",
		"allow of paths over http": "[[egress.allow]]\nhosts = [\"api.example\"]\nprotocol = \"http\"\npaths = [\"/a/**\"]\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkDecide(t, mustEngine(t, load(t, plainRules+rule+bypassPinned)), []decideCase{
				{"by name", flow(at, www), Inspect, ReasonNeedsRequest, "cdn"},
				{"by name, known", flow(at, www, sni), Inspect, ReasonNeedsRequest, "cdn"},
				{"bypassed", flow(at, hidden, said(AppTLS, "pinned.cdn.example")), Allow, ReasonRule, "cdn"},
				{"bypassed and not, at one address", flow(at, pinned("www.cdn.example", "pinned.cdn.example")), Peek, ReasonNeedsName, "cdn"},
				{"tls", flow(at, pinned("opaque.example"), said(AppTLS, "opaque.example")), Allow, ReasonRule, "opaque"},
				{"by address", flow(ranged), Peek, ReasonNeedsName, "range"},
				{"by address, a name", flow(ranged, www, sni), Inspect, ReasonNeedsRequest, "range"},
				{"by address, no name", flow(ranged, said(AppTLS, "")), Deny, ReasonNoName, "range"},
				{"by address, a name that isn't pinned", flow(ranged, sni), Deny, ReasonNotPinned, "range"},
				{"[hosts]", flow(inside, corp), Peek, ReasonNeedsName, "hosts.in.corp.example"},
				{"[hosts], TLS", flow(inside, corp, said(AppTLS, "in.corp.example")), Inspect, ReasonNeedsRequest, "hosts.in.corp.example"},
				{"[hosts], HTTP", flow(inside, corp, said(AppHTTP, "in.corp.example")), Inspect, ReasonNeedsRequest, "hosts.in.corp.example"},
				{"[hosts], another name", flow(inside, corp, said(AppTLS, "evil.example")), Deny, deniedAs(rule), deniedBy(rule)},
				{"[hosts], nothing said", flow(inside, corp, said(AppSilent, "")), Deny, ReasonNoName, ""},
				{"[hosts], another protocol", flow(inside, corp, said(AppOpaque, "")), Allow, ReasonHosts, "hosts.in.corp.example"},
			})
			same := func(text string) []decideCase {
				return []decideCase{
					{text + ": by name", flow(at, www), Peek, ReasonNeedsName, "cdn"},
					{text + ": by name, known", flow(at, www, sni), Allow, ReasonRule, "cdn"},
				}
			}
			if name != "allow of methods" && name != "deny of requests" { // inspect = "none" forbids those
				checkDecide(t, mustEngine(t, load(t, plainRules+rule+"[tls]\ninspect = \"none\"\n")), same("none"))
			}
			checkDecide(t, mustEngine(t, load(t, "[egress]\ndefault = \"public\"\n"+plainRules+rule)), same("public"))
		})
	}
	t.Run("nothing asks", func(t *testing.T) {
		t.Parallel()
		checkDecide(t, mustEngine(t, load(t, plainRules+"[[egress.deny]]\ncidrs = [\"8.8.8.0/24\"]\n")), []decideCase{
			{"by name", flow(at, www), Peek, ReasonNeedsName, "cdn"},
			{"by name, known", flow(at, www, sni), Allow, ReasonRule, "cdn"},
			{"[hosts]", flow(inside, corp), Allow, ReasonHosts, "hosts.in.corp.example"},
		})
	})
}

func deniedAs(rule string) Reason {
	if strings.Contains(rule, `hosts = ["evil.example"]`) && !strings.Contains(rule, "22") {
		return ReasonDenyRule
	}
	return ReasonNotPinned
}

func deniedBy(rule string) string {
	if deniedAs(rule) == ReasonDenyRule {
		return "deny[0]"
	}
	return ""
}

// With inspect = "all", a name is a boundary under "public" too, on every port.
func TestI7_InspectAllHoldsNamesUnderPublic(t *testing.T) {
	t.Parallel()
	const at = "tcp 93.184.215.14:8443"
	www := pinned("www.cdn.example")
	const policy = "[egress]\ndefault = \"public\"\n[tls]\ninspect = \"all\"\n"
	checkDecide(t, mustEngine(t, load(t, policy+"[[egress.deny]]\nhosts = [\"evil.example\"]\n")), []decideCase{
		{"connect", flow(at, www), Peek, ReasonNeedsName, ""},
		{"TLS", flow(at, www, said(AppTLS, "www.cdn.example")), Inspect, ReasonNeedsRequest, ""},
		{"HTTP", flow(at, www, said(AppHTTP, "www.cdn.example")), Inspect, ReasonNeedsRequest, ""},
		{"a name that isn't pinned", flow(at, said(AppTLS, "www.cdn.example")), Deny, ReasonNotPinned, ""},
		{"nothing said", flow(at, www, said(AppSilent, "")), Deny, ReasonNoName, ""},
		{"another protocol", flow(at, www, said(AppOpaque, "")), Allow, ReasonDefaultPublic, ""},
	})
	checkDecide(t, mustEngine(t, load(t, policy)), []decideCase{
		{"no rule about names", flow(at, www), Allow, ReasonDefaultPublic, ""},
	})
}

// A floor's rules and those of the policy over it are judged together.
func TestI7_FloorNameRulesCauseInspection(t *testing.T) {
	t.Parallel()
	const plain, denies = "[[egress.allow]]\nname = \"cdn\"\nhosts = [\"*.cdn.example\"]\n", "[[egress.deny]]\nhosts = [\"evil.example\"]\n"
	at := flow("tcp 93.184.215.14:443", pinned("pinned.cdn.example"), said(AppTLS, "pinned.cdn.example"))
	for name, tt := range map[string]struct {
		floor, policy string
		want          Action
	}{
		"the floor denies":                        {plain + denies, plain, Inspect},
		"a public floor denies":                   {"[egress]\ndefault = \"public\"\n" + denies, plain, Inspect},
		"the policy denies":                       {plain, plain + denies, Inspect},
		"a public policy denies":                  {plain, "[egress]\ndefault = \"public\"\n" + denies, Inspect},
		"both are public":                         {"[egress]\ndefault = \"public\"\n", "[egress]\ndefault = \"public\"\n" + denies, Allow},
		"the policy denies, the floor bypasses":   {plain + bypassPinned, plain + denies, Allow},
		"the floor inspects nothing":              {plain + "[tls]\ninspect = \"none\"\n", plain + denies, Allow},
		"the policy bypasses what it alone needs": {plain, plain + denies + bypassPinned, Allow},
		"nobody denies":                           {plain, plain, Allow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := policies.Tighten(load(t, tt.floor), load(t, tt.policy))
			if err != nil {
				t.Fatal(err)
			}
			e := mustEngine(t, p)
			if v := e.Decide(&at); v.Action != tt.want {
				t.Errorf("got %v (%s), want %v", v.Action, v.Message(), tt.want)
			}
			asked := at
			asked.Stage, asked.Method, asked.Path = StageRequest, "GET", "/"
			if v := e.Decide(&asked); tt.want == Inspect && !v.Allowed() {
				t.Errorf("it is inspected, and each request refused: %s", v.Message())
			}
		})
	}
}

func TestExplainNamesTheRuleBehindInspection(t *testing.T) {
	t.Parallel()
	e := mustEngine(t, load(t, plainRules+"[[egress.deny]]\nname = \"no evil\"\nhosts = [\"evil.example\"]\n"))
	for name, f := range map[string]Flow{
		"by name": flow("tcp 93.184.215.14:443", pinned("www.cdn.example"), said(AppTLS, "www.cdn.example")),
		"[hosts]": flow("tcp 198.18.0.2:443", mapped("in.corp.example"), said(AppTLS, "in.corp.example")),
	} {
		_, steps := e.Explain(&f)
		found := false
		for _, s := range steps {
			found = found || s.What == "inspection" && strings.Contains(s.Result, "rule no evil ")
		}
		if !found {
			t.Errorf("%s: no step names the rule: %q", name, steps)
		}
	}
}

// Without this check, a client that sends a name under bypass to some other address would keep any connection from
// being inspected.
func TestI7_BypassNeedsThePinnedAddress(t *testing.T) {
	t.Parallel()
	const at = "tcp 93.184.215.14:443"
	const public = "[egress]\ndefault = \"public\"\n"
	const ranged = "[[egress.allow]]\nname = \"range\"\ncidrs = [\"93.184.0.0/16\"]\nprotocol = \"https\"\nports = [443]\n"
	const denies = "[[egress.deny]]\nhosts = [\"evil.example\"]\n"
	const all = "inspect = \"all\"\n"
	hidden := said(AppTLS, "pinned.cdn.example")
	for name, tt := range map[string]struct {
		policy string
		stray  Action
		reason Reason
	}{
		"public":                  {public + denies + bypassPinned + all, Deny, ReasonNotPinned},
		"a rule by address":       {ranged + denies + bypassPinned, Deny, ReasonNotPinned},
		"all, a rule by address":  {ranged + bypassPinned + all, Deny, ReasonNotPinned},
		"public, auto (twin)":     {public + denies + bypassPinned, Allow, ReasonDefaultPublic},
		"nothing is asked (twin)": {ranged + bypassPinned, Allow, ReasonRule},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := mustEngine(t, load(t, tt.policy))
			for where, f := range map[string]Flow{"no name's": flow(at, hidden), "another name's": flow(at, pinned("www.cdn.example"), hidden)} {
				if v := e.Decide(&f); v.Action != tt.stray || v.Reason != tt.reason {
					t.Errorf("at %s address: %v, %v; want %v, %v", where, v.Action, v.Reason, tt.stray, tt.reason)
				}
			}
			own := flow(at, pinned("pinned.cdn.example"), hidden)
			if v := e.Decide(&own); v.Action != Allow {
				t.Errorf("at its own address: %s", v.Message())
			}
		})
	}
}

// A deny rule about requests also denies clients whose bytes some server may take for a request.
func TestI7_DeniedRequestsDontGoUnread(t *testing.T) {
	t.Parallel()
	const puts = "[[egress.deny]]\nname = \"puts\"\nhosts = [\"*\"]\nmethods = [\"PUT\"]\nprotocol = \"http\"\n"
	const relays = "[[egress.allow]]\nhosts = [\"www.cdn.example\"]\nprotocol = \"tcp\"\nports = [80, 8080]\n"
	unclear := func(f *Flow) { said(AppOpaque, "")(f); f.Unclear = true }
	for _, policy := range []string{"[egress]\ndefault = \"public\"\n" + puts, relays + puts} {
		checkDecide(t, mustEngine(t, load(t, policy)), []decideCase{
			{"text", flow("tcp 93.184.215.14:80", pinned("www.cdn.example"), unclear), Deny, ReasonDenyRule, "puts"},
			{"nothing", flow("tcp 93.184.215.14:80", pinned("www.cdn.example"), said(AppSilent, "")), Deny, ReasonDenyRule, "puts"},
		})
		other := flow("tcp 93.184.215.14:80", pinned("www.cdn.example"), said(AppOpaque, ""))
		elsewhere := flow("tcp 93.184.215.14:8080", pinned("www.cdn.example"))
		for _, f := range []Flow{other, elsewhere} {
			if v := mustEngine(t, load(t, policy)).Decide(&f); v.Action != Allow {
				t.Errorf("what is no HTTP: %s", v.Message())
			}
		}
	}
}
