package policies

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

func TestMatchPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		glob, path string
		want       bool
	}{
		{"/a", "/a", true}, {"/a", "/a/", false}, {"/a", "/ab", false}, {"/", "/", true},
		{"/a/*", "/a/b", true}, {"/a/*", "/a/b/c", false}, {"/a/*", "/a/", true}, {"/a/*", "/a", false},
		{"/a/**", "/a/b/c", true}, {"/a/**", "/a/", true}, {"/a/**", "/a", false}, {"/a/**", "/ab", false},
		{"/repos/acme/**", "/repos/acme-evil/x", false}, {"/repos/acme/**", "/repos/acme/../x", true},
		{"/**/info", "/a/b/info", true}, {"/**/info", "/info", false}, {"**", "/anything/at/all", true}, {"**", "", true},
		{"/*/x", "/a/x", true}, {"/*/x", "/a/b/x", false}, {"/a*b", "/axxb", true}, {"/a*b", "/a/b", false},
		{"/v*/**/end", "/v1/a/b/end", true}, {"/v*/**/end", "/v1/end", false},
		{"/é*", "/école", true}, {"/a", "/A", false}, {"/a.b", "/axb", false},
	} {
		if got := MatchPath(c.glob, c.path); got != c.want {
			t.Errorf("MatchPath(%q, %q) = %v, want %v", c.glob, c.path, got, c.want)
		}
	}
	if MatchPath(strings.Repeat("*", maxGlob+1), "/") {
		t.Error("an endless glob matches")
	}
}

// The matcher agrees with a regular expression made from the glob.
func TestMatchPathAgreesWithRegexp(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	text := func(alphabet string, n int) string {
		b := make([]byte, random.IntN(n))
		for i := range b {
			b[i] = alphabet[random.IntN(len(alphabet))]
		}
		return string(b)
	}
	matched := 0
	for range 20000 {
		glob, path := text("ab/**", 8), text("ab/", 9)
		if strings.Contains(glob, "***") {
			continue
		}
		expr := strings.ReplaceAll(strings.ReplaceAll(glob, "**", "."), "*", "[^/]*")
		re := regexp.MustCompile(`^(?s:` + strings.ReplaceAll(expr, ".", ".*") + `)$`)
		want := re.MatchString(path)
		if got := MatchPath(glob, path); got != want {
			t.Fatalf("MatchPath(%q, %q) = %v, want %v", glob, path, got, want)
		}
		if want {
			matched++
		}
	}
	if matched < 500 {
		t.Fatalf("only %d of the pairs match: the test says little", matched)
	}
}

func BenchmarkMatchPath(b *testing.B) {
	for name, c := range map[string][2]string{
		"usual":   {"/repos/acme/**", "/repos/acme/project/contents/main.go"},
		"hostile": {"/" + strings.Repeat("**a", 160), "/" + strings.Repeat("a", 4000)},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				MatchPath(c[0], c[1])
			}
		})
	}
}
