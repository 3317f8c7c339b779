package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChangesThatFailAreTold: one file that can't be written is an error and an exit code, and the others are written all the
// same.
func TestChangesThatFailAreTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		changes, written []string
		code             int
		out, err         string
	}{
		{[]string{"a", "broken", "z"}, []string{"a", "z"}, exitDenied, "added     HOST/a\nadded     HOST/z\n", "msb: /work/broken: "},
		{[]string{"broken"}, nil, exitDenied, "", "msb: /work/broken: "},
		{[]string{"a", ".envrc", "z"}, []string{"a", "z"}, exitDenied, "added     HOST/a\nadded     HOST/z\n", "msb: /work/.envrc: refused without --allow direnv: "},
		{[]string{"a"}, []string{"a"}, 0, "added     HOST/a\n", ""},
		{nil, nil, 0, "", "msb: nothing is changed\n"},
	} {
		host, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		env, g := runningSandbox(t, "n", "-v", host+":/work:cow")
		g.answer(answers{changes: c.changes})
		got := msb(t, env, "apply", "n")
		if got.code != c.code || strings.ReplaceAll(got.out, host, "HOST") != c.out || !strings.HasPrefix(got.err, c.err) || strings.Count(got.err, "\n") != min(1, len(c.err)) {
			t.Errorf("%q: %+v", c.changes, got)
		}
		entries, err := os.ReadDir(host)
		if err != nil || len(entries) != len(c.written) {
			t.Errorf("%q: %q is written, %v", c.changes, entries, err)
		}
		for _, name := range c.written {
			if b, err := os.ReadFile(filepath.Join(host, name)); err != nil || string(b) != changedText {
				t.Errorf("%q: %s has %q, %v", c.changes, name, b, err)
			}
		}
	}
}
