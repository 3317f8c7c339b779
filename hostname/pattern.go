package hostname

import (
	"encoding"
	"fmt"
	"strings"
)

// Pattern matches a set of names. There are three kinds:
//
//	example.com     that name only
//	*.example.com   every name below it at any depth, not example.com itself
//	*               every name
//
// It is comparable. The zero value matches nothing.
type Pattern struct {
	base Name
	kind kind
}

type kind uint8

const (
	kindNone  kind = iota // zero Pattern: nothing
	kindExact             // base only
	kindBelow             // everything below base
	kindAny               // everything
)

var (
	_ encoding.TextMarshaler   = Pattern{}
	_ encoding.TextUnmarshaler = (*Pattern)(nil)
)

// ParsePattern reads a pattern. A star anywhere but as the whole first label is
// refused: "api-*.example.com" and "*example.com" look safer than they are.
func ParsePattern(s string) (Pattern, error) {
	if s == "*" {
		return Pattern{kind: kindAny}, nil
	}
	rest, below := strings.CutPrefix(s, "*.")
	if strings.Contains(rest, "*") {
		return Pattern{}, fmt.Errorf("%w pattern %q: a star can only be the whole first label, as in \"*.example.com\"", ErrInvalid, s)
	}
	base, err := Parse(rest)
	if err != nil {
		return Pattern{}, err
	}
	if below {
		return Pattern{base: base, kind: kindBelow}, nil
	}
	return Pattern{base: base, kind: kindExact}, nil
}

// MustParsePattern is ParsePattern for constants and tests: it panics on an
// error.
func MustParsePattern(s string) Pattern {
	p, err := ParsePattern(s)
	if err != nil {
		panic(err)
	}
	return p
}

// Exactly returns the pattern that matches n only; nothing for the zero Name.
func Exactly(n Name) Pattern {
	if n.IsZero() {
		return Pattern{}
	}
	return Pattern{base: n, kind: kindExact}
}

// Match reports whether n is in the set. The zero Name is in none.
func (p Pattern) Match(n Name) bool {
	switch p.kind {
	case kindExact:
		return n == p.base
	case kindBelow:
		return n.IsSubdomainOf(p.base)
	case kindAny:
		return !n.IsZero()
	case kindNone:
	}
	return false
}

// IsZero reports whether p is the zero Pattern, which matches nothing.
func (p Pattern) IsZero() bool { return p.kind == kindNone }

// Wildcard reports whether p starts with a star ("*.example.com" or "*").
func (p Pattern) Wildcard() bool { return p.kind == kindBelow || p.kind == kindAny }

// Any reports whether p is "*".
func (p Pattern) Any() bool { return p.kind == kindAny }

// Base returns the name behind the star, or the name itself; the zero Name for
// "*".
func (p Pattern) Base() Name { return p.base }

// Covers reports whether every name that q matches is matched by p too.
func (p Pattern) Covers(q Pattern) bool {
	switch {
	case q.kind == kindNone || p == q || p.kind == kindAny:
		return p.kind != kindNone || q.kind == kindNone
	case p.kind != kindBelow:
		return false
	case q.kind == kindAny:
		return false
	}
	// Here q is a name, or the names below one; p is "*.base". "*.base" covers
	// itself (handled above) and everything whose base lies below its own.
	return q.base.IsSubdomainOf(p.base)
}

// Overlaps reports whether some name is matched by both.
func (p Pattern) Overlaps(q Pattern) bool {
	if p.kind == kindNone || q.kind == kindNone {
		return false
	}
	// Patterns are nodes or subtrees of one tree: two of them share a name
	// only when one contains the other. The exception is a wildcard at the
	// length limit, below which no name fits; saying that it overlaps is safe.
	return p.Covers(q) || q.Covers(p)
}

// String returns the pattern as ParsePattern reads it, or "" for the zero
// Pattern.
func (p Pattern) String() string {
	switch p.kind {
	case kindExact:
		return p.base.s
	case kindBelow:
		return "*." + p.base.s
	case kindAny:
		return "*"
	case kindNone:
	}
	return ""
}

// MarshalText implements encoding.TextMarshaler.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler by ParsePattern; empty text
// is the zero Pattern.
func (p *Pattern) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*p = Pattern{}
		return nil
	}
	parsed, err := ParsePattern(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}
