package egress

import (
	"strings"
	"unicode/utf8"
)

// maxPath is the longest path in bytes that is compared with path rules.
// Matching takes time with the square of it at worst, and the guest chooses
// paths; longer ones are refused as unclear. Queries don't count.
const maxPath = 4096

// CleanPath decodes the path of a request for comparison with path rules. ok is
// false where servers are known to disagree on what the path means, so that a
// rule could vouch for one resource and the server serve another: dot segments
// and empty segments in any spelling, encoded slashes and backslashes, anything
// encoded twice, NUL and other control characters, parameters after ';', a
// fragment, a percent sign that encodes nothing, and paths that are no paths
// ("*", absolute forms). Such paths are refused rather than guessed at. A query
// is cut off.
func CleanPath(raw string) (clean string, ok bool) {
	raw, _, _ = strings.Cut(raw, "?")
	if len(raw) > maxPath || raw == "" || raw[0] != '/' {
		return "", false
	}
	clean = raw
	if strings.IndexByte(raw, '%') >= 0 {
		if clean, ok = decodeOnce(raw); !ok {
			return "", false
		}
	}
	if !utf8.ValidString(clean) { // %c0%af is a slash to decoders that take overlong forms
		return "", false
	}
	for i := range len(clean) {
		switch c := clean[i]; {
		case c < 0x20, c == 0x7f, c == '\\', c == ';', c == '%', c == '#', c == '?':
			return "", false
		}
	}
	for rest := clean[1:]; rest != ""; {
		segment, after, more := strings.Cut(rest, "/")
		if segment == "" || segment == "." || segment == ".." {
			return "", false // "//", "/./", "/../"
		}
		if !more {
			break
		}
		rest = after
	}
	return clean, true
}

// decodeOnce decodes percent-encoding. An encoded slash is a failure; other
// characters are for the caller to judge in their decoded form.
func decodeOnce(s string) (string, bool) {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		hi, lo := unhex(s[i+1]), unhex(s[i+2])
		if hi > 15 || lo > 15 {
			return "", false
		}
		c := hi<<4 | lo
		if c == '/' {
			return "", false
		}
		b.WriteByte(c)
		i += 2
	}
	return b.String(), true
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}
