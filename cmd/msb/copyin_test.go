package main

import "testing"

func TestCopiesAreHostAndGuest(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]copyIn{".:/work": {".", "/work"}, "/a:b:/c/": {"/a:b", "/c/"}, "a:/b:/c": {"a:/b", "/c"}} {
		if got, err := parseCopies([]string{v}); err != nil || got[0] != want {
			t.Errorf("%s: %+v, %v", v, got, err)
		}
	}
	for _, v := range []string{"", "a", "a:b", ":/b", "/a"} {
		if got, err := parseCopies([]string{v}); err == nil {
			t.Errorf("%q: %+v", v, got)
		}
	}
}
