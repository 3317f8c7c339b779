package policies

import (
	"strings"
	"testing"
)

// TestNamesHoldNothingThatHides tries characters that act on a terminal or show
// as nothing (Trojan Source, CVE-2021-42574) in every name and sentence of a file.
func TestNamesHoldNothingThatHides(t *testing.T) {
	t.Parallel()
	for _, c := range "\u0001\u001b\u007f\u0085\u009b\u061c\u200b\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\u206f\ufeff" {
		for _, key := range []string{"name", "why"} {
			text := "version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n" + key + " = \"pay" + escaped(c) + "load\"\n"
			if _, err := Parse("x.toml", []byte(text), nil); err == nil {
				t.Errorf("%s with %U is taken", key, c)
			} else if strings.ContainsRune(err.Error(), c) {
				t.Errorf("%s with %U: the error holds it: %q", key, c, err)
			}
		}
	}
}

// escaped is c as TOML has it.
func escaped(c rune) string {
	const digits = "0123456789abcdef"
	return `\u` + string([]byte{digits[c>>12&15], digits[c>>8&15], digits[c>>4&15], digits[c&15]})
}
