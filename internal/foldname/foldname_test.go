package foldname

import "testing"

func TestNamesThatMayBeOneAreOne(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a": "a", "": "", ".ENV": ".env", ".env. .": ".env", ".env::$DATA": ".env", ".e\u200cnv": ".env", ".e\ufe0fnv": ".env", ".env\U000e0100": ".env", ".\u115fenv": ".env", "\u212aey": "key", "\u017f": "s", "ﬁle": "file", "STRAẞE": "strasse",
		"GIT~1": ".git", "git~": ".git", "gi\u0131": "gi\u0131", "ÄÖ": "äö", "a\xff": "a\ufffd",
	} {
		if got := Element(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
	if got := Path("A./B /c"); got != "a/b/c" {
		t.Error(got)
	}
}
