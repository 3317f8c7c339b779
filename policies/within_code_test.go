package policies

import (
	"net/netip"
	"testing"
)

// TestI5_WithinInCodeIsPlain: a policy that is made in code has not been through the file's parser.
func TestI5_WithinInCodeIsPlain(t *testing.T) {
	t.Parallel()
	for text, sound := range map[string]bool{
		"10.20.0.0/16":        true,
		"10.20.0.1/16":        false,
		"::ffff:8.8.8.0/120":  false,
		"::ffff:10.0.0.0/104": false,
	} {
		p, err := Parse("test.toml", []byte("version = 1\n[[egress.allow]]\nhosts = [\"wiki.corp.example\"]\nwithin = [\"10.30.0.0/16\"]\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		p.Egress.Allow[0].Within = []netip.Prefix{netip.MustParsePrefix(text)}
		if err := validate(p); (err == nil) != sound {
			t.Errorf("%s: %v", text, err)
		}
	}
}
