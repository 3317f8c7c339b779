package probe_test

import (
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
name = "ntp"
cidrs = ["9.9.9.9/32"]
protocol = "udp"
ports = [123]
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

func TestAskWalksTheStagesOfAFlow(t *testing.T) {
	t.Parallel()
	p, e := load(t, file)
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
		{"echo.internal.example:443", "", "", "allow", ""},
		{"10.0.0.1:443", "", "", "deny", ""},
		{"[::1]:443", "", "", "deny", ""},
		{"169.254.169.254:80", "", "", "deny", ""},
		{"api.example.com/icmp", "", "", "deny", ""},
	}
	for _, tt := range tests {
		target, err := probe.Parse(tt.to)
		if err != nil {
			t.Fatalf("%s: %v", tt.to, err)
		}
		target.Method, target.Path = tt.method, tt.path
		got := probe.Ask(e, p, target)
		if got.Action != tt.action || tt.rule != "" && got.Rule != tt.rule {
			t.Errorf("%s %s %s: got %s by %q (%s), want %s by %q", tt.to, tt.method, tt.path, got.Action, got.Rule, got.Reason, tt.action, tt.rule)
		}
		if len(got.Steps) == 0 || got.Message == "" {
			t.Errorf("%s: no steps or message in %+v", tt.to, got)
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

func TestDiffSaysWhatOpensAndWhatCloses(t *testing.T) {
	t.Parallel()
	a, _ := load(t, file)
	b, _ := load(t, "version = 1\n[egress]\ndefault = \"public\"\n[[egress.deny]]\nhosts = [\"api.example.com\"]\n")
	changes, err := probe.Diff(a, b)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, c := range changes {
		kinds[c.Target+" "+c.Method] = c.Kind
	}
	want := map[string]string{
		"api.example.com:443 GET": "closes",
		"93.184.215.14:443 ":      "opens",
	}
	for target, kind := range want {
		if kinds[target] != kind {
			t.Errorf("%q: got %q, want %q in %v", target, kinds[target], kind, kinds)
		}
	}
	if k, ok := kinds["10.0.0.1:443 "]; ok {
		t.Errorf("a private address was said to change: %s", k)
	}
	same, err := probe.Diff(a, a)
	if err != nil || len(same) != 0 {
		t.Errorf("a policy differs from itself: %v, %v", same, err)
	}
}
