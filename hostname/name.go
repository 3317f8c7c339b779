package hostname

import (
	"encoding"
	"strings"
)

// Name is a normalised host name: lower case, without a trailing dot, in IDNA
// A-labels ("xn--bcher-kva.example"), at most 253 bytes long with labels of 1
// to 63 bytes, and never an IP address in any spelling. It is comparable: two
// Names are the same host name exactly when they are ==. The zero value is no
// name.
type Name struct{ s string }

var (
	_ encoding.TextMarshaler   = Name{}
	_ encoding.TextUnmarshaler = (*Name)(nil)
)

// String returns the name as it travels in DNS, without a trailing dot, or ""
// for the zero Name.
func (n Name) String() string { return n.s }

// IsZero reports whether n is no name at all.
func (n Name) IsZero() bool { return n.s == "" }

// Parent returns the name without its first label, or the zero Name when only
// one label is left.
func (n Name) Parent() Name {
	_, rest, ok := strings.Cut(n.s, ".")
	if !ok {
		return Name{}
	}
	return Name{rest}
}

// Labels returns the labels from left to right; none for the zero Name.
func (n Name) Labels() []string {
	if n.s == "" {
		return nil
	}
	return strings.Split(n.s, ".")
}

// IsSubdomainOf reports whether n lies below parent, at any depth. A name is
// not a subdomain of itself, and nothing is a subdomain of the zero Name. The
// comparison is by whole labels: "notexample.com" is not below "example.com".
func (n Name) IsSubdomainOf(parent Name) bool {
	cut := len(n.s) - len(parent.s)
	return parent.s != "" && cut > 1 && n.s[cut-1] == '.' && n.s[cut:] == parent.s
}

// MarshalText implements encoding.TextMarshaler. The zero Name is the empty
// text.
func (n Name) MarshalText() ([]byte, error) { return []byte(n.s), nil }

// UnmarshalText implements encoding.TextUnmarshaler by Parse; empty text is the
// zero Name.
func (n *Name) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*n = Name{}
		return nil
	}
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*n = parsed
	return nil
}
