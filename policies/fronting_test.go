package policies_test

import (
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

func TestFrontingNamesWhatNobodyLooksInto(t *testing.T) {
	t.Parallel()
	const web = "[[egress.allow]]\nname = \"web\"\nhosts = [\"a.example\"]\n"
	const denies = "[[egress.deny]]\nname = \"no\"\nhosts = [\"b.example\"]\n"
	rule := func(protocol, ports string) string {
		return "[[egress.allow]]\nname = \"other\"\nhosts = [\"c.example\"]\nprotocol = \"" + protocol + "\"\nports = [" + ports + "]\n"
	}
	for name, tt := range map[string]struct {
		policy string
		want   []string
	}{
		"nothing to hold":                {"[[egress.allow]]\ncidrs = [\"8.8.8.8/32\"]\nports = [22]\n", nil},
		"https alone":                    {web, []string{`a name in an https rule is no boundary`}},
		"https alone, all inspected":     {web + "[tls]\ninspect = \"all\"\n", nil},
		"a deny rule":                    {web + denies, nil},
		"a deny rule, and tls":           {web + denies + rule("tls", "993"), []string{`rule "other", protocol tls`}},
		"a deny rule, and tcp":           {web + denies + rule("tcp", "443"), []string{`rule "other", protocol tcp`}},
		"a deny rule, and ssh":           {web + denies + rule("tcp", "22"), nil},
		"a deny rule, and any":           {web + denies + rule("any", `"1-1000"`), []string{`rule "other", protocol any`}},
		"a deny rule, and QUIC":          {web + denies + rule("udp", "443"), []string{`rule "other", protocol udp`}},
		"methods, and tls":               {web + "methods = [\"GET\"]\n" + rule("tls", "443"), []string{`rule "other", protocol tls`}},
		"bypass":                         {web + denies + "[tls]\nbypass = [\"*.a.example\", \"a.example\"]\n", []string{"*.a.example", "to a.example"}},
		"nothing inspected":              {web + denies + "[tls]\ninspect = \"none\"\n", []string{`test.toml:5:1: fronting: there are ways around the rule "no"`}},
		"public":                         {"[egress]\ndefault = \"public\"\n" + denies, []string{`a name is no boundary`}},
		"public, no rule":                {"[egress]\ndefault = \"public\"\n", nil},
		"public, all inspected, and tls": {"[egress]\ndefault = \"public\"\n[tls]\ninspect = \"all\"\n" + denies + rule("tls", "443"), []string{`rule "other", protocol tls`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := policies.Parse("test.toml", []byte("version = 1\n"+tt.policy), nil)
			if err != nil {
				t.Fatal(err)
			}
			got := policies.Fronting(p)
			if len(got) != len(tt.want) {
				t.Fatalf("got %d remarks, want %d:\n%v", len(got), len(tt.want), got)
			}
			for i, r := range got {
				if !strings.Contains(r.Error(), tt.want[i]) || r.Remedy == "" {
					t.Errorf("got %q, want %q in it, and a remedy", r.Error(), tt.want[i])
				}
			}
		})
	}
}
