package hostname

import "testing"

func TestPatternMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"example.com", "example.com", true},
		{"Example.com.", "EXAMPLE.COM", true},
		{"example.com", "www.example.com", false},
		{"example.com", "example.com.evil.org", false},
		{"*.example.com", "www.example.com", true},
		{"*.example.com", "a.b.example.com", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", "notexample.com", false},
		{"*.example.com", "evil-example.com", false},
		{"*.example.com", "www.example.com.evil.org", false},
		{"*.bücher.example", "www.xn--bcher-kva.example", true},
		{"*", "anything.example", true},
		{"*", "localhost", true},
	} {
		if got := MustParsePattern(c.pattern).Match(MustParse(c.name)); got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.name, got, c.want)
		}
	}
	for _, p := range []Pattern{{}, MustParsePattern("*"), MustParsePattern("*.com"), MustParsePattern("a.com")} {
		if p.Match(Name{}) {
			t.Errorf("%q matches no name", p)
		}
	}
	if (Pattern{}).Match(MustParse("a.com")) {
		t.Error("the zero pattern matches")
	}
}

func TestParsePatternRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "*.", "**", "**.a.com", "*a.com", "a.*.com", "a.*", "*.*.com", "*.127.0.0.1", "*.10", "10.0.0.1", "*.a.com:443", ".a.com", "＊.a.com"} {
		if p, err := ParsePattern(s); err == nil {
			t.Errorf("ParsePattern(%q) = %q", s, p)
		}
	}
}

// Covers and Overlaps are compared with what Match says over a set of names
// that holds one on each side of every border between the patterns.
func TestPatternRelationsAgreeWithMatch(t *testing.T) {
	t.Parallel()
	patterns := []Pattern{{}}
	for _, s := range []string{"*", "*.com", "com", "a.com", "*.a.com", "b.a.com", "*.b.a.com", "ba.com", "*.ba.com"} {
		patterns = append(patterns, MustParsePattern(s))
	}
	var names []Name
	for _, s := range []string{"org", "com", "a.com", "x.com", "b.a.com", "x.a.com", "x.b.a.com", "ba.com", "x.ba.com"} {
		names = append(names, MustParse(s))
	}
	for _, p := range patterns {
		for _, q := range patterns {
			covers, overlaps := true, false
			for _, n := range names {
				covers = covers && (p.Match(n) || !q.Match(n))
				overlaps = overlaps || p.Match(n) && q.Match(n)
			}
			if got := p.Covers(q); got != covers {
				t.Errorf("%q covers %q: %v, want %v", p, q, got, covers)
			}
			if got := p.Overlaps(q); got != overlaps {
				t.Errorf("%q overlaps %q: %v, want %v", p, q, got, overlaps)
			}
		}
	}
}

func TestPatternParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, base     string
		wildcard, anyN bool
	}{{"a.com", "a.com", false, false}, {"*.a.com", "a.com", true, false}, {"*", "", true, true}} {
		p := MustParsePattern(c.text)
		if p.String() != c.text || p.Base().String() != c.base || p.Wildcard() != c.wildcard || p.Any() != c.anyN || p.IsZero() {
			t.Errorf("%q: %q %q %v %v", c.text, p, p.Base(), p.Wildcard(), p.Any())
		}
		text, err := p.MarshalText()
		var back Pattern
		if err != nil || back.UnmarshalText(text) != nil || back != p {
			t.Errorf("%q came back as %q", p, back)
		}
	}
	if Exactly(MustParse("a.com")) != MustParsePattern("a.com") || !Exactly(Name{}).IsZero() {
		t.Error("Exactly is not the pattern of one name")
	}
	p := MustParsePattern("a.com")
	if err := p.UnmarshalText(nil); err != nil || !p.IsZero() || p.String() != "" {
		t.Errorf("empty text gives %q, %v", p, err)
	}
	if err := p.UnmarshalText([]byte("a*")); err == nil {
		t.Error("a bad pattern was unmarshalled")
	}
}
