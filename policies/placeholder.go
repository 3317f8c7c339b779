package policies

import (
	"fmt"
	"strconv"
	"strings"
)

// DefaultPlaceholder is the shape for secrets that name none.
const DefaultPlaceholder = "msb_{32}"

// defaultSigV4Placeholder has the length and beginning of an access key id,
// which clients check.
const defaultSigV4Placeholder = "AKIA{16}"

const (
	// minRandom is the least number of random characters: 16 of 62 give 95
	// bits, so that a guest can't guess another sandbox's placeholder and no
	// ordinary text is one by chance.
	minRandom = 16
	// maxPlaceholder bounds what is searched for in each request.
	maxPlaceholder = 512
)

// Shape is a placeholder taken apart: Prefix, Random characters of
// [A-Za-z0-9], Suffix.
type Shape struct {
	Prefix string
	Random int
	Suffix string
}

// ParseShape reads "ghp_{36}".
func ParseShape(s string) (Shape, error) {
	prefix, rest, open := strings.Cut(s, "{")
	digits, suffix, closed := strings.Cut(rest, "}")
	n, err := strconv.Atoi(digits)
	switch {
	case !open || !closed || err != nil || strings.ContainsAny(suffix, "{}") || strings.Contains(prefix, "}"):
		return Shape{}, fmt.Errorf("%q has no random part; write one {n} for n random characters, such as \"ghp_{36}\"", s)
	case n < minRandom:
		return Shape{}, fmt.Errorf("%q has %d random characters; write {%d} or more, so that nobody guesses it", s, n, minRandom)
	case len(prefix)+n+len(suffix) > maxPlaceholder:
		return Shape{}, fmt.Errorf("%q is longer than %d characters", s, maxPlaceholder)
	}
	for _, c := range prefix + suffix {
		if !isUnreserved(c) {
			return Shape{}, fmt.Errorf("%q holds %q; letters, digits and \"-._~\" look the same in every encoding of a request, others don't", s, c)
		}
	}
	return Shape{prefix, n, suffix}, nil
}

// Len is the length of every placeholder of this shape, in bytes.
func (s Shape) Len() int { return len(s.Prefix) + s.Random + len(s.Suffix) }

// isUnreserved reports the characters that percent-encoding leaves alone
// (RFC 3986, section 2.3); JSON, HTML and headers leave them alone too.
func isUnreserved(c rune) bool {
	return isAlnum(c) || strings.ContainsRune("-._~", c)
}

func isAlnum(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// at returns the literal at i, or 0 where any letter or digit can stand.
func (s Shape) at(i int) byte {
	switch {
	case i < len(s.Prefix):
		return s.Prefix[i]
	case i < len(s.Prefix)+s.Random:
		return 0
	}
	return s.Suffix[i-len(s.Prefix)-s.Random]
}

// mayPrefix reports whether a placeholder of shape s could be the beginning of
// a longer one of shape t; the longer one would then be taken for the shorter
// with a tail.
func (s Shape) mayPrefix(t Shape) bool {
	if s.Len() >= t.Len() {
		return false
	}
	for i := range s.Len() {
		a, b := s.at(i), t.at(i)
		switch {
		case a == 0 && b == 0:
		case a == 0:
			if !isAlnum(rune(b)) {
				return false
			}
		case b == 0:
			if !isAlnum(rune(a)) {
				return false
			}
		case a != b:
			return false
		}
	}
	return true
}
