package mask

import (
	"html"
	"strings"
	"unicode/utf8"
)

// maxEntity is longer than every name that HTML has for a character.
const maxEntity = 34

// entity reads HTML character references.
func entity(b []byte) unit {
	if len(b) == 1 {
		return cut()
	}
	if b[1] == '#' {
		return numericEntity(b)
	}
	n := 1
	for n < len(b) && n < maxEntity && (b[n] >= '0' && b[n] <= '9' || b[n]|0x20 >= 'a' && b[n]|0x20 <= 'z') {
		n++
	}
	switch {
	case n == len(b):
		return cut()
	case b[n] == ';' && n > 2:
		var name [maxEntity + 1]byte
		text := html.UnescapeString(string(append(name[:0], b[:n+1]...)))
		if r, size := utf8.DecodeRuneInString(text); size == len(text) {
			return letter(r, n+1)
		}
	}
	return unit{}
}

// numericEntity reads &#65; and &#x41; with any number of zeros in front, and
// without the semicolon, as browsers do.
func numericEntity(b []byte) unit {
	prefix, base := 2, rune(10)
	if len(b) > 2 && b[2]|0x20 == 'x' {
		prefix, base = 3, 16
	}
	value, n := number(b[prefix:], base)
	end := prefix + n
	switch {
	case n == 0 && end == len(b):
		return cut()
	case n == 0:
		return unit{}
	case end == len(b):
		u := letter(value, end)
		u.open = true
		return u
	case b[end] == ';':
		end++
	}
	return letter(value, end)
}

// number reads digits of a base, and stops before a number gets too large for a
// character.
func number(b []byte, base rune) (value rune, digits int) {
	for digits < len(b) {
		d, ok := hexDigit(b[digits])
		if !ok || rune(d) >= base || value*base+rune(d) > utf8.MaxRune {
			break
		}
		value = value*base + rune(d)
		digits++
	}
	return value, digits
}

// quotedUnit reads what = begins in quoted-printable text (RFC 2045, section
// 6.7): a byte, or a line break that isn't one. In a string, the break is \r\n or \n.
func quotedUnit(b []byte) unit {
	switch {
	case len(b) == 1:
		return cut()
	case b[1] == '\n':
		return unit{kind: unitSkip, width: 2}
	case b[1] == '\r' && len(b) == 2:
		return cut()
	case b[1] == '\r' && b[2] == '\n':
		return unit{kind: unitSkip, width: 3}
	case b[1] == '\\':
		for _, lineBreak := range []string{`\r\n`, `\n`} {
			if after := b[1:min(len(b), 1+len(lineBreak))]; string(after) == lineBreak {
				return unit{kind: unitSkip, width: 1 + len(lineBreak)}
			} else if 1+len(after) == len(b) && strings.HasPrefix(lineBreak, string(after)) {
				return cut()
			}
		}
	}
	return hexUnit(b, 1, 2)
}
