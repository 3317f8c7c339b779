package policies

import (
	"fmt"
	"slices"
	"testing"
)

// TestI15_InheritTakesUsefulSecretsAlone: with what p reaches over inspected https, and what is taken over is sound under
// the floor and as a file of its own.
func TestI15_InheritTakesUsefulSecretsAlone(t *testing.T) {
	floor := parse(t, `
[[egress.allow]]
hosts = ["api.example.com", "*.corp.example"]
ports = ["443", "8443"]
protocol = "https"
[secrets.ONE]
from = "env:ONE"
hosts = ["api.example.com", "*.corp.example"]
in = ["basic"]
[secrets.TWO]
from = "file:/run/two"
hosts = ["api.example.com:8443"]
in = ["body"]
`)
	floor.File, floor.Path, floor.Included = "floor.toml", "/op/floor.toml", []string{"/op/more.toml"}
	const api = "[[egress.allow]]\nhosts = [\"api.example.com\"]\n"
	for _, c := range []struct{ text, want string }{
		{"", "[]"},
		{"[[egress.allow]]\nhosts = [\"pypi.org\"]\n", "[]"},
		{api, "[ONE:[api.example.com]]"},
		{api + "protocol = \"tls\"\n", "[]"},
		{api + "protocol = \"https\"\nports = [8443]\n", "[TWO:[api.example.com:8443]]"},
		{api + "methods = [\"GET\"]\n", "[ONE:[api.example.com]]"},
		{"[[egress.allow]]\nhosts = [\"git.corp.example\", \"api.example.com\"]\n", "[ONE:[api.example.com *.corp.example]]"},
		{api + "[tls]\ninspect = \"none\"\n", "[]"},
		{api + "[tls]\nbypass = [\"*.example.com\"]\n", "[]"},
		{"[egress]\ndefault = \"public\"\n", "[ONE:[api.example.com *.corp.example] TWO:[api.example.com:8443]]"},
		{"[egress]\ndefault = \"public\"\n[[egress.deny]]\nhosts = [\"api.example.com\"]\n", "[ONE:[*.corp.example]]"},
		{api + "[secrets.ONE]\nfrom = \"env:ONE\"\nhosts = [\"api.example.com\"]\nin = [\"query:q\"]\n", "[ONE:[api.example.com]]"},
	} {
		p := parse(t, c.text)
		got := Inherit(floor, p)
		names := []string{}
		for _, s := range got.Secrets {
			hosts := []string{}
			for _, h := range s.Hosts {
				hosts = append(hosts, h.Display())
			}
			names = append(names, fmt.Sprintf("%s:%s", s.Name, hosts))
		}
		if fmt.Sprint(names) != c.want {
			t.Errorf("%s\ngives %s, want %s", c.text, names, c.want)
		}
		if _, err := Parse("again", Encode(got), nil); err != nil {
			t.Errorf("%s\nis no file of its own: %v", c.text, err)
		}
		if taken := len(got.Secrets) > len(p.Secrets); taken != (got.Path == floor.Path) || taken != slices.Equal(got.Included, floor.Included) {
			t.Errorf("%s\ncounts as of %q", c.text, got.Path)
		}
		if _, err := Tighten(floor, got); err != nil && len(p.Secrets) == 0 && len(p.TLS.Bypass) == 0 {
			t.Errorf("%s\nis beyond the floor: %v", c.text, err)
		}
		if len(floor.Secrets[0].Hosts) != 2 || len(p.Secrets) > 1 || p.Path != "" {
			t.Fatal("an argument was changed")
		}
	}
}
