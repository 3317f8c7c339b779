package policies

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryPresetIsSound(t *testing.T) {
	t.Parallel()
	names := Presets()
	for _, want := range []string{"offline", "public", "pypi", "npm", "golang", "crates", "rubygems", "maven", "debian", "ubuntu", "alpine", "github", "gitlab", "docker-hub", "ghcr", "huggingface", "anthropic", "openai"} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no preset %s", want)
		}
	}
	for _, name := range names {
		p, err := Preset(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if (p.Egress.Default == DefaultPublic) != (name == "public") {
			t.Errorf("%s: default is %v", name, p.Egress.Default)
		}
		if len(p.Egress.Allow) == 0 && name != "offline" && name != "public" {
			t.Errorf("%s allows nothing", name)
		}
		if len(p.Secrets)+len(p.Hosts)+len(p.TLS.Bypass)+len(p.TLS.ExtraCA) > 0 || p.TLS.Via != "" {
			t.Errorf("%s has more than rules", name)
		}
		for _, r := range p.Egress.Allow {
			if r.Why == "" || r.Private || !strings.HasPrefix(r.Name, name+"/") || len(r.CIDRs) > 0 {
				t.Errorf("%s: rule %+v", name, r)
			}
		}
	}
}

// All presets fit together: no two share a rule's name or disagree.
func TestPresetsCanBeIncludedTogether(t *testing.T) {
	t.Parallel()
	names := slices.DeleteFunc(Presets(), func(n string) bool { return n == "offline" })
	p := parse(t, "include = "+tomlValue(names)+"\n")
	if len(p.Egress.Allow) < 30 || p.Egress.Default != DefaultPublic {
		t.Errorf("%d rules, default %v", len(p.Egress.Allow), p.Egress.Default)
	}
}

func TestUnknownPresetListsThem(t *testing.T) {
	t.Parallel()
	_, err := Preset("pypy")
	if err == nil || !strings.Contains(err.Error(), `did you mean "pypi"`) || !strings.Contains(err.Error(), "alpine, anthropic") {
		t.Errorf("error is %v", err)
	}
}
