package egress

import (
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

func TestCleanPathDecodesWhatIsClear(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"/":                      "/",
		"/repos/acme/":           "/repos/acme/",
		"/repos/acme/msb":        "/repos/acme/msb",
		"/repos/acme?path=/evil": "/repos/acme",
		"/repos/acme?x=%2f":      "/repos/acme",
		"/%72epos/acme":          "/repos/acme",
		"/a%20b":                 "/a b",
		"/b%C3%BCcher":           "/bücher",
		"/v1.0/...x/.hidden":     "/v1.0/...x/.hidden",
		"/a@b:c/d+e,f=g&h":       "/a@b:c/d+e,f=g&h",
	} {
		if got, ok := CleanPath(raw); !ok || got != want {
			t.Errorf("CleanPath(%q) = %q, %v; want %q", raw, got, ok, want)
		}
	}
}

func TestCleanPathRefusesAmbiguousPaths(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"", "*", "repos", "http://evil.example/repos", "//repos", "/repos//acme", "/repos/acme//",
		"/.", "/..", "/repos/./acme", "/repos/../evil", "/repos/..", "/repos/.", "/repos/.?x",
		"/%2e%2e/evil", "/repos/.%2e/evil", "/repos/%2E/acme", "/repos/%2e%2e",
		"/repos%2facme", "/repos%2Facme", "/repos%5cacme", "/repos\\acme", "/..\\evil",
		"/repos%252facme", "/repos%25%32%66acme", "/%25", "/repos%00", "/repos\x00", "/repos%0d%0aX", "/a\tb", "/a%7fb",
		"/repos;x=1/acme", "/repos%3bx/acme", "/..;/evil", "/repos#frag", "/repos%23frag", "/repos%3fx",
		"/repos%", "/repos%2", "/repos%zz", "/%c0%af", "/%c0%ae%c0%ae/evil", "/\xff", "/%u002f",
		"/" + strings.Repeat("a", maxPath),
	} {
		if got, ok := CleanPath(raw); ok {
			t.Errorf("CleanPath(%q) = %q, want a refusal", raw, got)
		}
	}
}

func FuzzCleanPath(f *testing.F) {
	for _, s := range []string{"/repos/acme", "/%2e%2e/x", "/a;b", "//", "/%252f", "/b%C3%BC?x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		clean, ok := CleanPath(raw)
		if !ok {
			return
		}
		// A clean path reads the same for whoever cleans it once more.
		if again, ok := CleanPath(clean); !ok || again != clean {
			t.Errorf("%q -> %q -> %q, %v", raw, clean, again, ok)
		}
		for s := range strings.SplitSeq(clean[1:], "/") {
			if s == "." || s == ".." {
				t.Errorf("%q -> %q", raw, clean)
			}
		}
		if !policies.MatchPath("/**", clean) {
			t.Errorf("/** doesn't match %q", clean)
		}
	})
}
