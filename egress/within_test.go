package egress

import (
	"net/netip"
	"testing"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

const wiki = `
[[egress.allow]]
name   = "wiki"
hosts  = ["wiki.corp.example"]
within = ["10.20.0.0/16"]
paths  = ["/wiki/**"]
`

const lab = `
[[egress.allow]]
name    = "lab"
cidrs   = ["10.0.0.0/8"]
ports   = ["1-65535"]
private = true

[[egress.allow]]
name     = "lab datagrams"
cidrs    = ["10.0.0.0/8"]
ports    = ["1-65535"]
protocol = "udp"
private  = true
`

func TestI5_NamesReachOnlyTheirRanges(t *testing.T) {
	t.Parallel()
	const host = "wiki.corp.example"
	other := "[[egress.allow]]\nname = \"other\"\nhosts = [\"other.example.com\"]\n"
	for _, tt := range []struct {
		name, policy string
		flow         Flow
		action       Action
		reason       Reason
	}{
		{"within", wiki, flow("tcp 10.20.0.5:443", pinned(host)), Inspect, ReasonNeedsRequest},
		{"within, in v4-mapped form", wiki, flow("tcp [::ffff:10.20.0.5]:443", pinned(host)), Inspect, ReasonNeedsRequest},
		{"outside", wiki, flow("tcp 10.21.0.5:443", pinned(host)), Deny, ReasonSpecialAddress},
		{"a public address", wiki, flow("tcp 93.184.215.14:443", pinned(host)), Deny, ReasonWithin},
		{"no pin", wiki, flow("tcp 10.20.0.5:443"), Deny, ReasonSpecialAddress},
		{"another name", wiki, flow("tcp 10.20.0.5:443", pinned("other.corp.example")), Deny, ReasonSpecialAddress},
		{"another port", wiki, flow("tcp 10.20.0.5:22", pinned(host)), Deny, ReasonSpecialAddress},
		{"another transport", wiki, flow("icmp 10.20.0.5", pinned(host)), Deny, ReasonSpecialAddress},
		{"a name without within", other + lab, flow("tcp 10.20.0.5:443", pinned("other.example.com")), Allow, ReasonRule}, // by the address
		{"QUIC", wiki, flow("udp 10.20.0.5:443", pinned(host)), Deny, ReasonQUIC},

		{"lab: by address", wiki + lab, flow("tcp 10.20.0.5:443"), Allow, ReasonRule},
		{"lab: another port of the name", wiki + lab, flow("tcp 10.20.0.5:22", pinned(host)), Allow, ReasonRule},
		{"lab: the name", wiki + lab, flow("tcp 10.20.0.5:443", pinned(host)), Inspect, ReasonNeedsRequest},
		{"lab: GET", wiki + lab, flow("tcp 10.20.0.5:443", pinned(host), request(AppTLS, host, "GET", "/wiki/x")), Allow, ReasonRule},
		{"lab: PUT", wiki + lab, flow("tcp 10.20.0.5:443", pinned(host), request(AppTLS, host, "PUT", "/admin")), Deny, ReasonPath},
		{"lab: another SNI", wiki + lab, flow("tcp 10.20.0.5:443", pinned(host), said(AppTLS, "other.corp.example")), Deny, ReasonNoRule},
		{"lab: no TLS", wiki + lab, flow("tcp 10.20.0.5:443", pinned(host), said(AppOpaque, "")), Deny, ReasonProtocol},
		{"lab: QUIC", wiki + lab, flow("udp 10.20.0.5:443", pinned(host)), Deny, ReasonQUIC},
		{"lab: QUIC, reported", "[egress]\nmode = \"report\"\n" + wiki + lab, flow("udp 10.20.0.5:443", pinned(host)), Deny, ReasonQUIC},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := load(t, tt.policy)
			v := mustEngine(t, p).Decide(&tt.flow)
			if v.Action != tt.action || v.Reason != tt.reason {
				t.Errorf("%v %v, want %v %v", v.Action, v.Message(), tt.action, tt.reason)
			}
		})
	}
}

func TestI5_AnswersKeepOnlyTheNamesRanges(t *testing.T) {
	t.Parallel()
	everything, reported := "[egress]\ndefault = \"public\"\n", "[egress]\nmode = \"report\"\n"
	mixed := "[[egress.allow]]\nhosts = [\"wiki.corp.example\"]\nwithin = [\"10.20.0.0/16\", \"0.0.0.0/0\"]\n"
	for _, tt := range []struct {
		policy, name, addr string
		want               Reason
	}{
		{wiki, "wiki.corp.example", "10.20.0.5", ReasonRule},
		{wiki, "wiki.corp.example", "10.21.0.5", ReasonSpecialAddress},
		{wiki, "wiki.corp.example", "169.254.169.254", ReasonMetadata},
		{wiki, "wiki.corp.example", "127.0.0.1", ReasonHostAddress},
		{wiki, "wiki.corp.example", "93.184.215.14", ReasonWithin},
		{everything + wiki, "wiki.corp.example", "93.184.215.14", ReasonRule},
		{reported + wiki, "wiki.corp.example", "93.184.215.14", ReasonRule},
		{reported + wiki, "wiki.corp.example", "10.21.0.5", ReasonSpecialAddress},
		{wiki, "other.corp.example", "10.20.0.5", ReasonSpecialAddress},
		{everything + wiki + lab, "evil.example.com", "10.20.0.5", ReasonSpecialAddress}, // no rule names it
		{lab, "evil.example.com", "10.20.0.5", ReasonSpecialAddress},
		{mixed, "wiki.corp.example", "93.184.215.14", ReasonRule},
		{mixed, "wiki.corp.example", "10.20.0.5", ReasonRule},
		{mixed, "wiki.corp.example", "192.168.0.1", ReasonSpecialAddress},
		{mixed, "wiki.corp.example", "2a00:1450:4001::1", ReasonWithin},
	} {
		e := mustEngine(t, load(t, tt.policy))
		v := e.AllowsAddr(hostname.MustParse(tt.name), netip.MustParseAddr(tt.addr))
		if v.Reason != tt.want || v.Allowed() != (tt.want == ReasonRule) {
			t.Errorf("%s at %s: %v, want %v\n%s", tt.name, tt.addr, v.Message(), tt.want, tt.policy)
		}
	}
}

// A range that is public as a block opens nothing special that hides in it.
func TestI5_PublicRangesOpenNothingInside(t *testing.T) {
	t.Parallel()
	p := policies.Default()
	p.Egress.Allow = []policies.Rule{{
		Name: "wide", Hosts: patterns("wiki.corp.example"), Protocol: policies.Any,
		Within: prefixes("0.0.0.0/0", "::/0", "2a00:1450::/32"),
	}}
	e := mustEngine(t, p)
	for _, a := range []string{"10.0.0.1", "fd00::1", "2a00:1450:4001::5efe:a00:1", "64:ff9b::a00:1", "2002:a00:1::"} {
		f := Flow{Proto: TCP, Dst: netip.AddrPortFrom(netip.MustParseAddr(a), 443), Pinned: names("wiki.corp.example")}
		if v := e.Decide(&f); v.Action != Deny {
			t.Errorf("%s: %v", a, v.Message())
		}
	}
}

// Rules that differ in their ranges only are two rules.
func TestI5_RangesAreNotJoined(t *testing.T) {
	t.Parallel()
	rule := func(name, within string) string {
		return "[[egress.allow]]\nname = \"" + name + "\"\nhosts = [\"wiki.corp.example\"]\n" + within
	}
	e := mustEngine(t, load(t, rule("public", "")+rule("inside", "within = [\"10.20.0.0/16\"]\n")+rule("v6", "within = [\"fd00:20::/32\"]\n")))
	for _, a := range []string{"93.184.215.14", "10.20.0.5", "fd00:20::1"} {
		f := Flow{Proto: TCP, Dst: netip.AddrPortFrom(netip.MustParseAddr(a), 443), Pinned: names("wiki.corp.example")}
		if v := e.Decide(&f); v.Action != Peek {
			t.Errorf("%s: %v", a, v.Message())
		}
	}
}
