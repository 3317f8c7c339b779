package image

import "testing"

func TestSpellingsOfAReferenceAreAlike(t *testing.T) {
	t.Parallel()
	digest := "@sha256:0000000000000000000000000000000000000000000000000000000000000000"
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"python:3.12", "docker.io/library/python:3.12", true},
		{"python", "index.docker.io/library/python:latest", true},
		{"a.test/b" + digest, "a.test/b" + digest, true},
		{"dir:/a", "dir:/a", true},
		{"builtin", "builtin", true},
		{"", "", true},
		{"python:3.12", "python:3.13", false},
		{"python:3.12", "a.test/python:3.12", false},
		{"python:3.12", "other/python:3.12", false},
		{"a.test/b:1", "a.test/b" + digest, false},
		{"builtin", "docker.io/library/builtin", false},
		{"dir:/a", "dir:/a/", false},
		{"oci:/a", "/a", false},
		{"python", "", false},
		{"a b", "a  b", false},
	} {
		if SameReference(c.a, c.b) != c.same || SameReference(c.b, c.a) != c.same {
			t.Errorf("%q and %q: want %v", c.a, c.b, c.same)
		}
	}
}
