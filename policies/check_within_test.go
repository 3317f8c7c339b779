package policies

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func host(name string, lines ...string) string {
	return "[[egress.allow]]\nname = \"" + name + "\"\nhosts = [\"" + name + "\"]\n" + strings.Join(append(lines, ""), "\n")
}

func network(cidr string, lines ...string) string {
	return "[[egress.allow]]\nname = \"net\"\ncidrs = [\"" + cidr + "\"]\nprivate = true\n" + strings.Join(append(lines, ""), "\n")
}

// What policies were once advised to write for a name inside is refused, with what to
// write in its place; that is sound and opens the range to that name alone.
func TestI5_PairsAreRefusedWithTheirReplacement(t *testing.T) {
	t.Parallel()
	const https, lab = "ports = [443]", "10.20.0.0/16"
	for _, text := range []string{
		host("wiki.corp.example") + network("10.8.0.0/16", https),
		network("10.8.0.0/16", https) + host("wiki.corp.example", "methods = [\"GET\"]"),
		host("git.acme.com", "ports = [22, 80, 443]") + network(lab, https),
		host("git.acme.com", "ports = [22, 80, 443]") + network(lab, "ports = [22, 80]"),
		host("git.acme.com", "paths = [\"/a/**\"]") + network(lab, https, "protocol = \"https\""),
		host("*.acme.com") + network("fd00:20::/32", https),
		host("time.acme.com", "ports = [123]", "protocol = \"udp\"") + network(lab, "ports = [123]", "protocol = \"udp\""),
		host("ping.acme.com", "protocol = \"icmp\"") + network(lab, "protocol = \"icmp\""),
		host("any.acme.com", "protocol = \"any\"") + network(lab, "protocol = \"any\""),
		host("api.github.com") + host("git.acme.com") + network(lab, https),
		host("wiki.internal") + network("10.0.0.0/8", "ports = [\"1-65535\"]"),
		host("wiki.home.arpa") + network("10.0.0.0/8", "protocol = \"any\""),
	} {
		_, err := Parse("p.toml", []byte("version = 1\n"+text), nil)
		if err == nil {
			t.Errorf("accepted:\n%s", text)
			continue
		}
		var lines []string
		for line := range strings.Lines(err.Error()) {
			if rest, ok := strings.CutPrefix(line, "    "); ok {
				lines = append(lines, rest)
			}
		}
		p, perr := Parse("new.toml", []byte("version = 1\n"+strings.Join(lines, "")), nil)
		if perr != nil || len(p.Egress.Allow) == 0 {
			t.Errorf("the replacement isn't sound: %v\n%v", perr, err)
			continue
		}
		for _, r := range p.Egress.Allow {
			if len(r.Within) != 1 || len(r.CIDRs) > 0 || r.Private {
				t.Errorf("the replacement is\n%s", strings.Join(lines, ""))
			}
		}
	}
}

// A network's own rule may stand beside rules for names.
func TestNetworksBesideNamesAreNoPairs(t *testing.T) {
	t.Parallel()
	const lab = "10.20.0.0/16"
	for _, text := range []string{
		host("api.acme.com") + network(lab, "ports = [5432]"),
		host("api.acme.com") + network(lab, "ports = [\"1-65535\"]"),
		host("api.acme.com") + network(lab, "ports = [22, 443]"),
		host("api.acme.com") + network(lab, "protocol = \"any\""),
		host("api.acme.com") + network(lab, "protocol = \"icmp\""),
		host("api.acme.com") + network(lab, "ports = [443]", "protocol = \"udp\""),
		host("api.github.com") + network(lab, "ports = [443]"),
		host("*") + network(lab, "ports = [443]"),
		host("wiki.corp.example") + network(lab, "ports = [5432]"),
		host("wiki.corp.example", "within = [\"10.8.0.0/16\"]") + network(lab, "ports = [443]"),
		host("wiki.corp.example", "within = [\"10.20.8.0/24\"]") + network(lab, "ports = [443]"),
		host("api.acme.com", "within = [\"0.0.0.0/0\", \"::/0\"]") + network(lab, "ports = [443]"),
		host("wiki.acme.com") + "[[egress.allow]]\nname = \"inside\"\nhosts = [\"wiki.acme.com\"]\nwithin = [\"10.8.0.0/16\"]\n" + network(lab, "ports = [443]"),
		"[[egress.allow]]\nname = \"public\"\ncidrs = [\"8.8.8.0/24\"]\nports = [443]\n" + host("wiki.acme.com"),
	} {
		if _, err := Parse("p.toml", []byte("version = 1\n"+text), nil); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	for _, preset := range Presets() {
		text := fmt.Sprintf("version = 1\ninclude = [%q]\n", preset) + network(lab, "ports = [443]")
		if _, err := Parse("p.toml", []byte(text), nil); err != nil {
			t.Errorf("beside %s: %v", preset, err)
		}
	}
}

// A private rule by which methods and paths of a name can be gone around is pointed out.
func TestEvasionsNameBothRules(t *testing.T) {
	t.Parallel()
	const wiki = "within = [\"10.8.0.0/16\"]"
	for text, want := range map[string]bool{
		host("wiki.corp.example", wiki, "methods = [\"GET\"]") + network("10.0.0.0/8", "ports = [\"1-65535\"]"):                          true,
		host("wiki.corp.example", wiki, "paths = [\"/a\"]") + network("10.8.5.0/24", "protocol = \"any\""):                               true,
		host("wiki.corp.example", wiki) + network("10.0.0.0/8", "ports = [\"1-65535\"]"):                                                 false,
		host("wiki.corp.example", wiki, "paths = [\"/a\"]") + network("10.9.0.0/16", "ports = [443]"):                                    false,
		host("wiki.corp.example", wiki, "paths = [\"/a\"]") + network("10.0.0.0/8", "ports = [22]"):                                      false,
		host("wiki.corp.example", wiki, "paths = [\"/a\"]") + network("10.0.0.0/8", "ports = [443]", "protocol = \"udp\""):               false,
		host("wiki.corp.example", wiki, "paths = [\"/a\"]") + "[[egress.deny]]\nname = \"no\"\ncidrs = [\"10.0.0.0/8\"]\nports = [22]\n": false,
	} {
		p, err := Parse("p.toml", []byte("version = 1\n"+text), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := Evasions(p)
		if (len(got) > 0) != want || want && (!strings.Contains(got[0].Error(), `"net"`) || got[0].Line == 0) {
			t.Errorf("%v for\n%s", got, text)
		}
	}
}

// Whatever is refused of ranges alone is refused of a rule's ranges too.
func TestI5_OpensSpecialSeesEveryRange(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"0.0.0.0/0": false, "::/0": false, "8.8.8.0/24": false, "2a00:1450::/32": false,
		"10.0.0.0/8": true, "8.0.0.0/5": true, "10.1.2.3/32": true, "fd00::/8": true, "169.254.169.254/32": true,
		"168.63.129.16/32": true, "2a00:1450::5efe:a00:0/104": true, "64:ff9b::a00:1/128": true,
	} {
		if got := OpensSpecial(netip.MustParsePrefix(s)); got != want {
			t.Errorf("%s: %v, want %v", s, got, want)
		}
	}
	if !slices.ContainsFunc(specialRanges, OpensSpecial) {
		t.Error("no special range opens anything special")
	}
}
