package policies

import (
	"net/netip"
	"testing"
)

// TestI15_ClientsNeedEachFloorsRule asks about clients under none, one and two floors.
func TestI15_ClientsNeedEachFloorsRule(t *testing.T) {
	t.Parallel()
	rule := func(cidr string) *Policy {
		return parse(t, "[[ingress.allow]]\nname = \"lan\"\ncidrs = [\""+cidr+"\"]\n")
	}
	own := rule("10.0.0.0/8")
	floor, err := Tighten(rule("10.1.0.0/16"), own)
	if err != nil {
		t.Fatal(err)
	}
	floors, err := Tighten(rule("0.0.0.0/0"), floor)
	if err != nil {
		t.Fatal(err)
	}
	shut, err := Tighten(parse(t, ""), own)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		policy *Policy
		client string
		ok     bool
	}{
		{parse(t, ""), "10.1.2.3", false},
		{own, "10.1.2.3", true}, {own, "::ffff:10.1.2.3", true}, {own, "11.1.2.3", false}, {own, "fd00::1", false},
		{floor, "10.1.2.3", true}, {floor, "10.2.2.3", false},
		{floors, "10.1.2.3", true}, {floors, "10.2.2.3", false},
		{shut, "10.1.2.3", false},
		{rule("fe80::/10"), "fe80::1%eth0", true},
		{rule("::/0"), "10.1.2.3", false},
	} {
		if name, ok := c.policy.Admits(netip.MustParseAddr(c.client)); ok != c.ok || ok && name != "lan" {
			t.Errorf("%s: %v by %q, want %v\n%s", c.client, ok, name, c.ok, Encode(c.policy))
		}
	}
}

// TestI15_SandboxesNeedEachFloorsRule is the same for other sandboxes. A rule for addresses is none for sandboxes, nor the
// other way round.
func TestI15_SandboxesNeedEachFloorsRule(t *testing.T) {
	t.Parallel()
	rule := func(names, ports string) *Policy {
		return parse(t, "[[ingress.allow]]\nname = \"app\"\nsandboxes = ["+names+"]\nports = ["+ports+"]\n")
	}
	own := rule(`"web", "worker"`, "5432, \"6000-6010\"")
	floor, err := Tighten(rule(`"web"`, "5432"), own)
	if err != nil {
		t.Fatal(err)
	}
	shut, err := Tighten(parse(t, ""), own)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		policy *Policy
		name   string
		port   uint16
		ok     bool
	}{
		{own, "web", 5432, true}, {own, "worker", 6010, true}, {own, "web", 5433, false}, {own, "we", 5432, false}, {own, "", 5432, false},
		{floor, "web", 5432, true}, {floor, "worker", 5432, false}, {floor, "web", 6000, false}, {shut, "web", 5432, false},
		{parse(t, "[[ingress.allow]]\ncidrs = [\"0.0.0.0/0\", \"::/0\"]\n"), "web", 5432, false},
	} {
		if name, ok := c.policy.AdmitsSandbox(c.name, c.port); ok != c.ok || ok && name != "app" {
			t.Errorf("%d: %v by %q, want %v", i, ok, name, c.ok)
		}
	}
	if _, ok := own.Admits(netip.MustParseAddr("10.0.0.1")); ok || own.Ingress.AdmitsAddresses() {
		t.Error("a rule for sandboxes lets addresses in")
	}
}

// TestI15_PodsAreNarrowedByEachFloor: to a pod's ports every client may connect, unless its policy or a floor says who may.
func TestI15_PodsAreNarrowedByEachFloor(t *testing.T) {
	t.Parallel()
	rule := func(name, cidr string) *Policy {
		return parse(t, "[[ingress.allow]]\nname = \""+name+"\"\ncidrs = [\""+cidr+"\"]\n")
	}
	under := func(floor, own *Policy) *Policy {
		p, err := Tighten(floor, own)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	wide := rule("wide", "10.0.0.0/8")
	for i, c := range []struct {
		policy       *Policy
		client, rule string
		ok           bool
	}{
		{parse(t, ""), "203.0.113.9", "", true},
		{parse(t, "[[ingress.allow]]\nsandboxes = [\"web\"]\nports = [80]\n"), "203.0.113.9", "", true},
		{wide, "10.1.2.3", "wide", true}, {wide, "::ffff:10.1.2.3", "wide", true}, {wide, "11.1.2.3", "", false},
		{under(wide, parse(t, "")), "10.1.2.3", "wide", true}, {under(wide, parse(t, "")), "11.1.2.3", "", false},
		{under(parse(t, ""), wide), "10.1.2.3", "wide", true}, {under(parse(t, ""), wide), "11.1.2.3", "", false},
		{under(wide, rule("own", "10.1.0.0/16")), "10.1.2.3", "own", true}, {under(wide, rule("own", "10.1.0.0/16")), "10.2.2.3", "", false},
		{under(rule("narrow", "10.1.0.0/16"), wide), "10.2.2.3", "", false},
	} {
		if rule, ok := c.policy.AdmitsToPod(netip.MustParseAddr(c.client)); rule != c.rule || ok != c.ok {
			t.Errorf("%d: %s: %v by %q", i, c.client, ok, rule)
		}
	}
}
