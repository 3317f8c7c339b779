package policies

import (
	"strings"
	"testing"

	"github.com/msb-project/msb/hostname"
)

func TestSecretHostsTakeAPort(t *testing.T) {
	t.Parallel()
	name := hostname.MustParse("a.example")
	for text, want := range map[string]string{
		"a.example":        "a.example",
		"a.example:443":    "a.example",
		"A.Example.:8443":  "a.example:8443",
		"*.example:1":      "*.example:1",
		"a.example:65535":  "a.example:65535",
		"bücher.test:8443": "xn--bcher-kva.test:8443",
	} {
		h, err := ParseSecretHost(text)
		if err != nil || h.String() != want {
			t.Errorf("%q is %q, %v; want %q", text, h, err, want)
		}
		if again, err := ParseSecretHost(h.String()); err != nil || again != h {
			t.Errorf("%q reads as %+v, %v; want %+v", h, again, err, h)
		}
	}
	for _, text := range []string{
		"a.example:", "a.example:0", "a.example:65536", "a.example:1-2", "a.example:443,8443", "a.example:+443", "a.example: 443",
		"a.example:https", "a.example:443:443", ":443", "*:443x", "192.0.2.1:443", "[2001:db8::1]:443", "2001:db8::1", "https://a.example", "",
	} {
		if h, err := ParseSecretHost(text); err == nil {
			t.Errorf("%q is taken as %q", text, h)
		}
	}
	for _, c := range []struct {
		host string
		port uint16
		want bool
	}{{"a.example", 443, true}, {"a.example", 8443, false}, {"a.example", 0, false}, {"a.example:8443", 8443, true}, {"a.example:8443", 443, false}, {"b.example", 443, false}} {
		h, err := ParseSecretHost(c.host)
		if err != nil || h.Match(name, c.port) != c.want {
			t.Errorf("%s at port %d: %v, %v", c.host, c.port, h.Match(name, c.port), err)
		}
	}
	if h := (SecretHost{Pattern: hostname.Exactly(name)}); !h.Match(name, 443) || h.Match(name, 0) || h.String() != "a.example" {
		t.Error("the zero port does not stand for 443")
	}
}

// TestSecretsReachTheirPort tries policies whose rules open the port of a secret
// in every way, and others.
func TestSecretsReachTheirPort(t *testing.T) {
	t.Parallel()
	rule := func(keys string) string { return "[[egress.allow]]\nname = \"web\"\nhosts = [\"*.example\"]\n" + keys }
	secret := func(hosts string) string {
		return "[secrets.T]\nfrom = \"env:T\"\nhosts = [" + hosts + "]\nin = [\"basic\"]\n"
	}
	const mapped = "[hosts]\n\"a.example\" = \"127.0.0.1:5000\"\n"
	for _, c := range []struct{ text, want string }{
		{rule("") + secret(`"a.example"`), ""},
		{rule("ports = [443, 8443]\nprotocol = \"https\"\n") + secret(`"a.example"`), ""},
		{rule("ports = [\"8000-9000\"]\nprotocol = \"https\"\n") + secret(`"a.example:8443"`), ""},
		{rule("ports = [8443]\nprotocol = \"https\"\n") + secret(`"a.example"`), `test.toml:7:1: secrets.T.hosts[0]: the rule "web" opens other ports of a.example, and the value may go to port 443 only; write hosts = ["a.example:8443"] here, or ports = [443] there`},
		{rule("") + secret(`"a.example", "b.example:444"`), `hosts = ["b.example"] here, or ports = [444] there`},
		{rule("ports = [8443]\n") + secret(`"a.example:8443"`), "which isn't https"},
		{"[egress]\ndefault = \"public\"\n" + secret(`"a.example:8443"`), ""},
		{"[egress]\ndefault = \"public\"\n[[egress.deny]]\nname = \"no\"\nhosts = [\"a.example\"]\nports = [8443]\n" + secret(`"a.example:8443"`), `the deny rule "no" covers all`},
		{"[egress]\ndefault = \"public\"\n[[egress.deny]]\nname = \"no\"\nhosts = [\"a.example\"]\nports = [8443]\n" + secret(`"a.example"`), ""},
		{mapped + secret(`"a.example:5000"`), ""},
		{mapped + rule("") + secret(`"a.example"`), ""},
		{mapped + rule("") + secret(`"a.example:5000"`), "opens other ports"},
	} {
		_, err := Parse("test.toml", []byte("version = 1\n"+c.text), nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n got %v\nwant %q", c.text, err, c.want)
		}
	}
	floor := parse(t, rule(""))
	p := parse(t, rule("ports = [8443]\nprotocol = \"https\"\n")+secret(`"a.example:8443"`))
	if _, err := Tighten(floor, p); err == nil || !strings.Contains(err.Error(), "port 8443") {
		t.Errorf("a floor that opens 443 took a secret for 8443: %v", err)
	}
}
