package probe_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/probe"
	"github.com/msb-project/msb/policies"
)

const file = `
version = 1
[[egress.allow]]
name = "api"
hosts = ["api.example.com"]
protocol = "https"
methods = ["GET"]
[[egress.allow]]
name = "mirror"
hosts = ["*.mirror.example"]
protocol = "tls"
ports = [443]
[[egress.allow]]
name = "odd port"
hosts = ["web.example.com"]
protocol = "http"
ports = [9000]
[[egress.allow]]
name = "ntp"
cidrs = ["9.9.9.9/32"]
protocol = "udp"
ports = [123, 5353]
[hosts]
"echo.internal.example" = "builtin:echo"
`

func load(t *testing.T, text string) (*policies.Policy, *egress.Engine) {
	t.Helper()
	p, err := policies.Parse("test.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := egress.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, e
}

func ask(t *testing.T, p *policies.Policy, target probe.Target) probe.Answer {
	t.Helper()
	a, err := probe.Ask(p, target)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAskWalksAFlowsStages(t *testing.T) {
	t.Parallel()
	p, _ := load(t, file)
	tests := []struct {
		to, method, path string
		action, rule     string
	}{
		{"api.example.com:443", "", "", "inspect", "api"},
		{"api.example.com:443", "GET", "/x", "inspect", "api"},
		{"api.example.com:443", "POST", "/x", "deny", ""},
		{"api.example.com:22", "", "", "deny", ""},
		{"a.mirror.example:443", "", "", "allow", "mirror"},
		{"mirror.example:443", "", "", "deny", ""},
		{"9.9.9.9:123/udp", "", "", "allow", "ntp"},
		{"9.9.9.9:123", "", "", "deny", ""},
		{"echo.internal.example:443", "", "", "inspect", ""},
		{"echo.internal.example:22", "", "", "inspect", ""}, // its first bytes show that it is another protocol
		{"10.0.0.1:443", "", "", "deny", ""},
		{"[::1]:443", "", "", "deny", ""},
		{"169.254.169.254:80", "", "", "deny", ""},
		{"api.example.com/icmp", "", "", "deny", ""},
		{"echo.internal.example/icmp", "", "", "deny", ""},
		{"9.9.9.9:5353/udp", "", "", "deny", ""},
		{"web.example.com:9000", "GET", "/", "inspect", "odd port"},
	}
	for _, tt := range tests {
		target, err := probe.Parse(tt.to)
		if err != nil {
			t.Fatalf("%s: %v", tt.to, err)
		}
		target.Method, target.Path = tt.method, tt.path
		got := ask(t, p, target)
		if got.Action != tt.action || tt.rule != "" && got.Rule != tt.rule {
			t.Errorf("%s %s %s: got %s by %q (%s), want %s by %q", tt.to, tt.method, tt.path, got.Action, got.Rule, got.Reason, tt.action, tt.rule)
		}
		if len(got.Steps) == 0 || got.Message == "" {
			t.Errorf("%s: no steps or message in %+v", tt.to, got)
		}
	}
}

func TestI6_AskSaysWhoAnswersAtPort53(t *testing.T) {
	t.Parallel()
	p, _ := load(t, file)
	for to, want := range map[string]bool{"9.9.9.9:53/udp": true, "api.example.com:53": true, "9.9.9.9:123/udp": false} {
		target, err := probe.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		said := slices.ContainsFunc(ask(t, p, target).Steps, func(s probe.Step) bool { return strings.Contains(s.Result, "own resolver answers") })
		if said != want {
			t.Errorf("%s: says so: %v, want %v", to, said, want)
		}
	}
}

// TestI6_InternalNamesNeedARule: explain and diff say of names inside of a network what the resolver does with them.
func TestI6_InternalNamesNeedARule(t *testing.T) {
	t.Parallel()
	const public = "version = 1\n[egress]\ndefault = \"public\"\n"
	without, e := load(t, public)
	for name, may := range map[string]bool{
		"db.internal": true, "wiki.corp": true, "printer.lan": true, "x.home.arpa": true,
		"1.168.192.in-addr.arpa": false, "0-63.1.168.192.in-addr.arpa": false, "localhost": false,
	} {
		target, err := probe.Parse(name + ":443")
		if err != nil {
			t.Fatal(err)
		}
		if v, a := e.DecideName(target.Name), ask(t, without, target); v.Allowed() || !a.Denied() {
			t.Errorf("%s without a rule: the resolver's verdict is %v, explain says %+v", name, v, a)
		}
		rule, err := policies.Parse("test.toml", []byte(public+"[[egress.allow]]\nhosts = [\""+name+"\"]\nprotocol = \"https\"\n"), nil)
		if err != nil {
			if may {
				t.Errorf("%s: %v", name, err)
			}
			continue // check says that it can never match
		}
		with, err := egress.New(rule)
		if err != nil {
			t.Fatal(err)
		}
		if v, a := with.DecideName(target.Name), ask(t, rule, target); v.Allowed() != may || a.Denied() == may {
			t.Errorf("%s with a rule: the resolver's verdict is %v, explain says %+v", name, v, a)
		}
		if c, err := probe.Diff(without, rule); err != nil || may && !strings.Contains(fmt.Sprint(c.Flows), name) {
			t.Errorf("%s: diff says %+v, %v", name, c, err)
		}
	}
}

func TestParseRefusesWhatIsNoDestination(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "example.com", "example.com:", "example.com:0", "example.com:65536", "::1:443", "example.com:443/sctp", "exa mple.com:443"} {
		if got, err := probe.Parse(s); err == nil {
			t.Errorf("%q was read as %v", s, got)
		}
	}
}

func TestDiffNamesOpenedAndClosed(t *testing.T) {
	t.Parallel()
	a, _ := load(t, file)
	b, _ := load(t, "version = 1\n[egress]\ndefault = \"public\"\n[[egress.deny]]\nhosts = [\"api.example.com\"]\n")
	changes, err := probe.Diff(a, b)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, c := range changes.Flows {
		kinds[strings.TrimSpace(c.Target+" "+c.Said+c.Method)] = c.Kind
	}
	want := map[string]string{
		"api.example.com:443": "closes",
		"public IPv4:444-852": "opens",
		"*:444-852":           "opens",
		"*:444-852/udp":       "opens",
	}
	for target, kind := range want {
		if kinds[target] != kind {
			t.Errorf("%q: got %q, want %q in %v", target, kinds[target], kind, kinds)
		}
	}
	if k, ok := kinds["10.0.0.1:443"]; ok {
		t.Errorf("a private address was said to change: %s", k)
	}
	same, err := probe.Diff(a, a)
	if err != nil || !same.Same() {
		t.Errorf("a policy differs from itself: %v, %v", same, err)
	}
}

// Each case changes one thing; what it opens or closes is said, and nothing else.
func TestDiffMissesNoBorder(t *testing.T) {
	t.Parallel()
	const (
		below = "[[egress.allow]]\nhosts = [\"*.example.com\"]\n"
		lab   = "[[egress.allow]]\ncidrs = [\"10.0.0.0/8\"]\nprivate = true\n"
		wiki  = "[[egress.allow]]\nhosts = [\"wiki.corp.example\"]\n"
		api   = "[[egress.allow]]\nhosts = [\"api.example.com\"]\nprotocol = \"https\"\n"
	)
	tests := []struct {
		name, a, b string
		want       []string
	}{
		{"a deny rule takes one name out", below, below + "[[egress.deny]]\nhosts = [\"x.example.com\"]\n", []string{"changes *.example.com:443", "closes x.example.com:443", "opens *.example.com:443 anything but tls"}},
		{"every name", "", "[[egress.allow]]\nhosts = [\"*\"]\n", []string{"opens *:443"}},
		{"a range loses its second half", lab + "ports = [80]\n", "[[egress.allow]]\ncidrs = [\"10.0.0.0/9\"]\nports = [80]\nprivate = true\n", []string{"closes 10.0.0.0/8 from 10.128.0.0:80"}},
		{"a range loses its middle", lab + "ports = [80]\n", lab + "ports = [80]\n[[egress.deny]]\ncidrs = [\"10.5.0.0/16\"]\n", []string{"closes 10.5.0.0/16 from 10.5.0.0:80"}},
		{"ports lose their middle", lab + "ports = [\"1000-2000\"]\n", lab + "ports = [\"1000-1200\", \"1300-2000\"]\n", []string{"closes 10.0.0.0/8 from 10.0.0.0:1201-1299", "closes 10.0.0.1:1201-1299"}},
		{"methods go", api + "paths = [\"/**\"]\n", api + "methods = [\"GET\"]\npaths = [\"/**\"]\n", []string{"closes api.example.com:443 POST /", "closes api.example.com:443 POST /**"}},
		{"a path is narrowed", api + "paths = [\"/a/**\"]\n", api + "paths = [\"/a/*\"]\n", []string{"closes api.example.com:443 GET /a/**", "closes api.example.com:443 POST /a/**"}},
		{"a mapped name leads elsewhere", "[hosts]\n\"x.internal\" = \"127.0.0.1:80\"\n", "[hosts]\n\"x.internal\" = \"127.0.0.1:90\"\n", []string{"changes x.internal"}},
		{"a name gets a range", wiki, wiki + "within = [\"10.8.0.0/16\", \"0.0.0.0/0\"]\n", []string{"opens wiki.corp.example at 10.8.0.0/16 from 10.8.0.0:443", "closes wiki.corp.example at IPv6:443"}},
		{"a name keeps its range only", wiki, wiki + "within = [\"10.8.0.7/32\"]\n", []string{"closes wiki.corp.example:443", "opens wiki.corp.example at 10.8.0.7:443"}},
		{"a range of a name loses its half", wiki + "within = [\"10.8.0.0/16\"]\n", wiki + "within = [\"10.8.0.0/17\"]\n", []string{"closes wiki.corp.example at 10.8.0.0/16 from 10.8.128.0:443"}},
		{"a name gets a range under a public default", "[egress]\ndefault = \"public\"\n" + wiki, "[egress]\ndefault = \"public\"\n" + wiki + "within = [\"10.8.0.7/32\"]\n", []string{
			"opens wiki.corp.example at 10.8.0.7:443", "opens wiki.corp.example:443/udp", // QUIC was refused where the rule wants TLS
			"changes wiki.corp.example:443 http, http with another name",
		}},
		{"paths at a range", wiki + "within = [\"10.8.0.7/32\"]\npaths = [\"/**\"]\n", wiki + "within = [\"10.8.0.7/32\"]\nmethods = [\"GET\"]\n", []string{"closes wiki.corp.example at 10.8.0.7:443 POST /", "closes wiki.corp.example at 10.8.0.7:443 POST /**"}},
		{"a port of every public address closes", "[egress]\ndefault = \"public\"\n" + below, "[egress]\ndefault = \"public\"\n" + below + "[[egress.deny]]\nports = [25]\n", []string{
			"closes public IPv4:25", "closes public IPv4:25/udp", "closes public IPv6:25", "closes public IPv6:25/udp", "closes *:25", "closes *:25/udp",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, _ := load(t, "version = 1\n"+tt.a)
			b, _ := load(t, "version = 1\n"+tt.b)
			for i, pair := range [][2]*policies.Policy{{a, b}, {b, a}} {
				changes, err := probe.Diff(pair[0], pair[1])
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, c := range changes.Flows {
					got = append(got, strings.Join(strings.Fields(strings.Join([]string{c.Kind, c.Target, c.Said, c.Method, c.Path}, " ")), " "))
				}
				want := slices.Clone(tt.want)
				for j := range want {
					if i == 1 { // the way back
						want[j] = strings.NewReplacer("closes ", "opens ", "opens ", "closes ").Replace(want[j])
					}
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("way %d: got\n%s\nwant\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		})
	}
}

// A name is judged at an address of its rules' ranges, and denied at any other.
func TestAskTakesNamesWithinTheirRanges(t *testing.T) {
	t.Parallel()
	p, _ := load(t, "version = 1\n"+`
[[egress.allow]]
name = "wiki"
hosts = ["wiki.corp.example"]
within = ["fd00:8::/32", "10.8.0.0/16"]
paths = ["/wiki/**"]
[[egress.allow]]
name = "wiki, git"
hosts = ["wiki.corp.example"]
within = ["10.8.7.0/24"]
ports = [22]
[[egress.allow]]
name = "lab"
cidrs = ["10.0.0.0/8"]
ports = ["1-65535"]
private = true
`)
	tests := []struct{ to, at, path, action, reason string }{
		{"wiki.corp.example:443", "", "", "inspect", "needs_request"},
		{"wiki.corp.example:443", "", "/wiki/x", "inspect", "rule"},
		{"wiki.corp.example:443", "", "/admin", "deny", "path_not_allowed"},
		{"wiki.corp.example:22", "", "", "allow", "rule"},
		{"wiki.corp.example:443", "10.8.1.1", "/wiki/x", "inspect", "rule"},
		{"wiki.corp.example:443", "10.9.1.1", "/wiki/x", "deny", "special_address"},
		{"wiki.corp.example:443", "93.184.215.20", "/wiki/x", "deny", "outside_within"},
		{"10.8.1.1:443", "", "", "allow", "rule"},
	}
	for _, tt := range tests {
		target, err := probe.Parse(tt.to)
		if err != nil {
			t.Fatal(err)
		}
		target.Path = tt.path
		if tt.at != "" {
			target.Addr = netip.MustParseAddr(tt.at)
		}
		if got := ask(t, p, target); got.Action != tt.action || got.Reason != tt.reason {
			t.Errorf("%s at %q %s: %s (%s), want %s (%s)\n%+v", tt.to, tt.at, tt.path, got.Action, got.Reason, tt.action, tt.reason, got.Steps)
		}
	}
}

// TestMalformedRequestsAreDenied, as the proxy refuses them whatever the rules.
func TestMalformedRequestsAreDenied(t *testing.T) {
	t.Parallel()
	p, _ := load(t, "version = 1\n[[egress.allow]]\nhosts = [\"api.example.com\"]\nmethods = [\"GET\"]\n[[egress.allow]]\nhosts = [\"api.example.com\"]\nports = [80]\nprotocol = \"http\"\n")
	for _, port := range []string{":443", ":80"} {
		for _, r := range [][2]string{{"TRACE", "/"}, {"trace", "/"}, {"CONNECT", "/"}, {"GET", "/a#b"}, {"GET", "/a b"}, {"GET", "a"}, {"GET", "http://x/"}, {"GE T", "/"}, {"GET", "/"}} {
			target, err := probe.Parse("api.example.com" + port)
			if err != nil {
				t.Fatal(err)
			}
			target.Method, target.Path = r[0], r[1]
			if got, well := ask(t, p, target), r == [2]string{"GET", "/"}; got.Denied() == well || !well && got.Reason != "invalid" {
				t.Errorf("%s %q: %s (%s)", port, r, got.Action, got.Reason)
			}
		}
	}
}
