package policies

import "testing"

func TestParseShape(t *testing.T) {
	t.Parallel()
	s, err := ParseShape("ghp_{36}.x")
	if err != nil || s != (Shape{"ghp_", 36, ".x"}) || s.Len() != 42 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "x", "{}", "{15}", "{-20}", "{16", "16}", "}{16}", "{16}}", "{{16}}", "a/{16}", "a%{16}", "é{16}", "{16}\n", "{99999999999999999999}", "{513}"} {
		if s, err := ParseShape(bad); err == nil {
			t.Errorf("ParseShape(%q) = %+v", bad, s)
		}
	}
}

func TestShapesThatMayBeginAnother(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"sk-{20}", "sk-{48}", true},
		{"sk-{48}", "sk-{20}", false},
		{"ghp_{36}", "ghp_{36}", false}, // equal lengths: random parts tell them apart
		{"ghp_{36}", "gho_{40}", false},
		{"{20}", "msb_{32}", false}, // a random part holds no underscore
		{"{20}", "msb{32}", true},
		{"a{20}", "{40}", true},
		{"a_{20}", "{40}", false},
		{"{20}x", "{40}", true},
		{"{20}-", "{40}", false},
		{"sk-{48}", "sk-ant-{90}", false},
	} {
		a, errA := ParseShape(c.a)
		b, errB := ParseShape(c.b)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if got := a.mayPrefix(b); got != c.want {
			t.Errorf("%s may begin %s: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
