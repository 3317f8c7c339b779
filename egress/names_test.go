package egress

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

func TestSpecialNames(t *testing.T) {
	t.Parallel()
	for reason, list := range map[Reason][]string{
		ReasonLocalName:    {"localhost", "foo.localhost", "LOCALHOST.", "printer", "nas.local", "a.b.local", "notcluster.local", "cluster.local.local", "localhost.localdomain", "x.invalid", "x.onion", "x.alt", "host.docker.internal", "host.containers.internal"},
		ReasonMetadataName: {"metadata", "metadata.google.internal", "Metadata.Google.Internal.", "x.metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal", "metadata.tencentyun.com", "api.metadata.cloud.ibm.com"},
		ReasonNone:         {"example.com", "localhost.example.com", "metadata.example.com", "local.example.com", "registry.internal", "instance-data.example.org"},
	} {
		for _, s := range list {
			got, special := SpecialName(hostname.MustParse(s))
			if got != reason || special != (reason != ReasonNone) {
				t.Errorf("%s: %v, %v; want %v", s, got, special, reason)
			}
		}
	}
}

func TestDecideName(t *testing.T) {
	t.Parallel()
	e := mustEngine(t, load(t, example+`
[[egress.deny]]
name = "no mail from here"
hosts = ["pypi.org"]
ports = [25]
protocol = "tcp"
`))
	for _, tt := range []struct {
		name   string
		action Action
		reason Reason
		rule   string
	}{
		{"api.github.com", Allow, ReasonRule, "github"},
		{"raw.githubusercontent.com", Allow, ReasonRule, "github"},
		{"githubusercontent.com", Deny, ReasonNoRule, ""},
		{"gist.githubusercontent.com", Deny, ReasonDenyRule, "no gists"},
		{"pypi.org", Allow, ReasonRule, "pypi"}, // a deny rule on one port leaves the others
		{"ntp.example", Allow, ReasonRule, "time"},
		{"evil.example", Deny, ReasonNoRule, ""},
		{"db.corp.example", Deny, ReasonNoRule, ""}, // rules by address resolve nothing
		{"registry.internal", Allow, ReasonHosts, "hosts.registry.internal"},
		{"localhost", Deny, ReasonLocalName, ""},
		{"dns.google", Deny, ReasonEncryptedDNS, ""},
	} {
		if v := e.DecideName(hostname.MustParse(tt.name)); v.Action != tt.action || v.Reason != tt.reason || v.Rule != tt.rule {
			t.Errorf("%s: %v %v %q, want %v %v %q", tt.name, v.Action, v.Reason, v.Rule, tt.action, tt.reason, tt.rule)
		}
	}
	if v := e.DecideName(hostname.Name{}); v.Action != Deny || v.Reason != ReasonInvalid {
		t.Errorf("no name: %v", v.Message())
	}
}

func TestI5_AllowsAddr(t *testing.T) {
	t.Parallel()
	e := mustEngine(t, load(t, example), WithClassifier(worldClassifier()))
	n := hostname.MustParse("pypi.org")
	for s, want := range map[string]Reason{
		"93.184.215.14":        ReasonRule,
		"64:ff9b::5db8:d70e":   ReasonRule,
		"10.20.3.4":            ReasonSpecialAddress, // the lab rule is about addresses, not about names
		"10.21.0.1":            ReasonSpecialAddress,
		"192.168.1.1":          ReasonSpecialAddress,
		"127.0.0.1":            ReasonHostAddress,
		"::ffff:127.0.0.1":     ReasonHostAddress,
		"0.0.0.0":              ReasonHostAddress,
		"169.254.169.254":      ReasonMetadata,
		"64:ff9b::a9fe:a9fe":   ReasonMetadata,
		"93.184.215.77":        ReasonHostAddress,
		"2002:7f00:1::":        ReasonHostAddress,
		"fec0::1":              ReasonSpecialAddress,
		"198.18.0.1":           ReasonSpecialAddress,
		"255.255.255.255":      ReasonSpecialAddress,
		"2001:db8::1":          ReasonSpecialAddress,
		"fd00:ec2::254":        ReasonMetadata,
		"2001:0:7f00:1::1:1:1": ReasonHostAddress,
	} {
		v := e.AllowsAddr(n, netip.MustParseAddr(s))
		if v.Reason != want || (v.Action == Allow) != (want == ReasonRule) {
			t.Errorf("%s: %v, want %v", s, v.Message(), want)
		}
	}
	if v := e.AllowsAddr(n, netip.Addr{}); v.Action != Deny {
		t.Errorf("no address: %v", v.Message())
	}
}

func TestMetadataNeedsAnExactRule(t *testing.T) {
	t.Parallel()
	rule := func(cidr string) *Engine {
		return mustEngine(t, load(t, "[[egress.allow]]\nname = \"m\"\ncidrs = [\""+cidr+"\"]\nports = [80]\nprotocol = \"tcp\"\nprivate = true\n"))
	}
	f := flow("tcp 169.254.169.254:80")
	if v := rule("169.254.0.0/16").Decide(&f); v.Reason != ReasonMetadata {
		t.Errorf("by its range: %v", v.Message())
	}
	if v := rule("169.254.169.254/32").Decide(&f); v.Action != Allow || !v.Special {
		t.Errorf("by its address: %v", v.Message())
	}
	// The same for an answer of DNS.
	name, addr := hostname.MustParse("meta.example.com"), netip.MustParseAddr("169.254.169.254")
	for _, cidr := range []string{"169.254.0.0/16", "169.254.169.254/31", "169.254.169.254/32"} {
		if v := rule(cidr).AllowsAddr(name, addr); v.Action == Allow || v.Reason != ReasonMetadata {
			t.Errorf("an answer, by %s: %v", cidr, v.Message())
		}
	}
	within := func(cidr string) *Engine {
		return mustEngine(t, load(t, "[[egress.allow]]\nname = \"m\"\nhosts = [\"meta.example.com\"]\nwithin = [\""+cidr+"\"]\n"))
	}
	for _, cidr := range []string{"169.254.0.0/16", "169.254.169.254/31"} {
		if v := within(cidr).AllowsAddr(name, addr); v.Action == Allow || v.Reason != ReasonMetadata {
			t.Errorf("an answer, within %s: %v", cidr, v.Message())
		}
		f := flow("tcp 169.254.169.254:443", pinned("meta.example.com"))
		if v := within(cidr).Decide(&f); v.Action != Deny || v.Reason != ReasonMetadata {
			t.Errorf("a flow, within %s: %v", cidr, v.Message())
		}
	}
	if v := within("169.254.169.254/32").AllowsAddr(name, addr); v.Action != Allow || !v.Special {
		t.Errorf("an answer, by its address: %v", v.Message())
	}
}

func TestResolverListIsReadWhole(t *testing.T) {
	t.Parallel()
	lines := 0
	for line := range strings.Lines(resolversText) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		lines++
		if a, err := netip.ParseAddr(line); err == nil {
			if Classify(a) != ClassPublic || !knownResolvers().hasAddr(a) {
				t.Errorf("%v is %v", a, Classify(a))
			}
			continue
		}
		p, err := hostname.ParsePattern(line)
		if err != nil {
			t.Errorf("line %q: %v", line, err)
			continue
		}
		if !p.Wildcard() && !knownResolvers().hasName(p.Base()) {
			t.Errorf("%v isn't known", p)
		}
	}
	if lines < 100 {
		t.Errorf("only %d resolvers", lines)
	}
}

// TestI5_NoNameReachesMetadataAddresses: the zone of a name that may have private addresses chooses which.
func TestI5_NoNameReachesMetadataAddresses(t *testing.T) {
	t.Parallel()
	n := hostname.MustParse("lab.example")
	e := mustEngine(t, &policies.Policy{Version: 1, DNS: policies.Default().DNS, Egress: policies.EgressRules{Allow: []policies.Rule{{
		Name: "lab", Hosts: []hostname.Pattern{hostname.MustParsePattern("lab.example")}, Ports: []policies.PortRange{{First: 80, Last: 80}}, Protocol: policies.TCP,
		Within: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("128.0.0.0/1"), netip.MustParsePrefix("::/1"), netip.MustParsePrefix("8000::/1"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("169.254.169.254/31")},
	}}}})
	for _, a := range []string{"10.20.0.1", "169.254.1.1", "fd00::1"} { // the ranges do open other addresses
		if v := e.AllowsAddr(n, netip.MustParseAddr(a)); !v.Allowed() {
			t.Fatalf("%s may be no answer: %s", a, v.Message())
		}
	}
	for _, a := range []string{"169.254.169.254", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "::ffff:169.254.169.254", "2002:a9fe:a9fe::1"} {
		addr := netip.MustParseAddr(a)
		if v := e.AllowsAddr(n, addr); v.Allowed() {
			t.Errorf("%s may be an answer: %s", a, v.Message())
		}
		f := Flow{Proto: TCP, Dst: netip.AddrPortFrom(addr, 80), Pinned: []hostname.Name{n}}
		if v := e.Decide(&f); v.Allowed() {
			t.Errorf("%s may be connected to: %s", a, v.Message())
		}
	}
}
