package secretstore

import (
	"bytes"
	"crypto/rand"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

func TestPlaceholderHasItsShape(t *testing.T) {
	t.Parallel()
	for shape, want := range map[string]string{
		"ghp_{36}":     `^ghp_[A-Za-z0-9]{36}$`,
		"":             `^msb_[A-Za-z0-9]{32}$`,
		"sk-{40}-end":  `^sk-[A-Za-z0-9]{40}-end$`,
		"xoxb.~{16}_a": `^xoxb\.~[A-Za-z0-9]{16}_a$`,
	} {
		seen := make(map[string]bool)
		for range 50 {
			p, err := placeholder(shape, rand.Reader)
			if err != nil || !regexp.MustCompile(want).MatchString(p) || seen[p] {
				t.Errorf("%q: %q, %v", shape, p, err)
			}
			seen[p] = true
		}
	}
	// 256 is no multiple of 62: the rest would make some characters likelier.
	unfair := bytes.Repeat([]byte{0xff, 248}, 32)
	if p, err := placeholder("t{16}", bytes.NewReader(append(unfair, bytes.Repeat([]byte{247}, 64)...))); err != nil || p != "t"+strings.Repeat("9", 16) {
		t.Errorf("%q, %v of bytes that are thrown away and the last that isn't", p, err)
	}
	for _, shape := range []string{"ghp_", "ghp_{", "ghp_{x}", "ghp_{15}", "ghp_{-5}", "a b{36}", "a%{36}", "é{36}", "{99999}"} {
		if p, err := placeholder(shape, rand.Reader); !errors.Is(err, errShape) {
			t.Errorf("%q: %q, %v; want ErrShape", shape, p, err)
		}
	}
}

func TestPlaceholdersAreDistinct(t *testing.T) {
	t.Parallel()
	holder := func(name, shape, v string) *Holder {
		return Fixed(policies.Secret{Name: name, Placeholder: shape}, New([]byte(v)))
	}
	got, err := Placeholders([]*Holder{holder("A", "x{16}", "value-one"), holder("B", "x{16}", "value-two"), holder("C", "x{16}y", "value-three")}, nil, rand.Reader)
	if err != nil || len(got) != 3 {
		t.Fatalf("%v, %v", got, err)
	}
	// A source that always gives the same bytes makes one a prefix of another.
	same := bytes.NewReader(make([]byte, 1<<16))
	if _, err := Placeholders([]*Holder{holder("A", "x{16}", "value-one"), holder("B", "x{17}", "value-two")}, nil, same); !errors.Is(err, errShape) {
		t.Errorf("got %v, want ErrShape for prefixes", err)
	}
	if _, err := Placeholders([]*Holder{holder("A", "contains-value-{16}", "contains-value")}, nil, rand.Reader); !errors.Is(err, errShape) || !strings.Contains(err.Error(), "secret A") {
		t.Errorf("got %v, want ErrShape for a shape that holds the value", err)
	}
}

func TestPlaceholdersLastWithTheirShape(t *testing.T) {
	t.Parallel()
	holders := []*Holder{Fixed(policies.Secret{Name: "A", Placeholder: "ghp_{16}"}, New([]byte("the-value-of-a")))}
	for kept, want := range map[string]bool{
		"ghp_0123456789abcdef": true, "ghp_0123456789abcde": false, "ghp_0123456789abcde ": false, "": false,
		"0123456789abcdefghp_": false, "ghp_0123456789abcdefg": false, "ghp_the-value-of-a00": false,
	} {
		got, err := Placeholders(holders, map[string]string{"A": kept, "B": "ghp_aaaaaaaaaaaaaaaa"}, rand.Reader)
		if err != nil || (got[0] == kept) != want {
			t.Errorf("kept %q: %q, %v; want it kept: %v", kept, got, err, want)
		}
	}
}
