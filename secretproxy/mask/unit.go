package mask

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// unit is what a special byte begins.
type unit struct {
	width int // of the data
	kind  unitKind
	// open says that more data may make another unit of it.
	open bool
	size uint8 // of text
	text [utf8.UTFMax]byte
}

type unitKind uint8

const (
	unitLiteral unitKind = iota // stands for itself
	unitText                    // stands for text
	unitSkip                    // overlooked
)

// cut is a byte that may begin an escape, if there were more data.
func cut() unit { return unit{open: true} }

// char is an escape that stands for one byte.
func char(c byte, width int) unit {
	return unit{kind: unitText, width: width, size: 1, text: [utf8.UTFMax]byte{c}}
}

// letter is an escape that stands for a character.
func letter(r rune, width int) unit {
	u := unit{kind: unitText, width: width}
	u.size = uint8(utf8.EncodeRune(u.text[:], r))
	return u
}

// decodeUnit reads the unit at the start of b, whose first byte is special.
func decodeUnit(b []byte) unit {
	switch b[0] {
	case '\r', '\n':
		return lineBreak(b, 1, true)
	case 0: // the other half of a UTF-16 character
		n := 1
		for n < len(b) && b[n] == 0 {
			n++
		}
		return unit{kind: unitSkip, width: n}
	case '%':
		if len(b) > 1 && b[1] == 'u' {
			return unit16(b, 'u')
		}
		return hexUnit(b, 1, 2)
	case '\\':
		return backslash(b)
	case '&':
		return entity(b)
	}
	return unit{}
}

// lineBreak overlooks a line break of width bytes, and the indent of the next
// line: base64 is folded so. In a string, a tab is \t.
func lineBreak(b []byte, width int, inString bool) unit {
	for ; width < len(b); width++ {
		switch b[width] {
		case ' ', '\t', '\n', '\r', 0:
			continue
		case '\\':
			if n := blankInString(b[width:]); inString && n > 0 {
				width += n - 1
				continue
			}
		}
		return unit{kind: unitSkip, width: width}
	}
	return unit{kind: unitSkip, width: width}
}

// blankInString returns the width of what stands for a blank or half a character
// of UTF-16 in a string.
func blankInString(b []byte) int {
	for _, escape := range []string{`\t`, `\n`, `\r`, `\u0000`, `\x00`} {
		if bytes.HasPrefix(b, []byte(escape)) {
			return len(escape)
		}
	}
	return 0
}

// hexNumber reads up to most hexadecimal digits.
func hexNumber(b []byte, most int) (value rune, digits int) {
	for digits < len(b) && digits < most && value < 1<<24 {
		d, ok := hexDigit(b[digits])
		if !ok {
			break
		}
		value = value<<4 | rune(d)
		digits++
	}
	return value, digits
}

// hexUnit reads a byte of that many hexadecimal digits behind a prefix.
func hexUnit(b []byte, prefix, digits int) unit {
	value, n := hexNumber(b[min(prefix, len(b)):], digits)
	switch {
	case n == digits:
		return char(byte(value), prefix+digits)
	case prefix+n == len(b):
		return cut()
	}
	return unit{}
}

func hexDigit(c byte) (int, bool) {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0'), true
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10, true
	}
	return 0, false
}

// unit16Width is that of \u0041 and %u0041.
const unit16Width = 6

// unit16 reads a character as UTF-16 counts them: one escape, or two for those
// beyond its first plane.
func unit16(b []byte, mark byte) unit {
	high, n := hexNumber(b[2:], 4)
	if n < 4 {
		if 2+n == len(b) {
			return cut()
		}
		return unit{}
	}
	if !utf16.IsSurrogate(high) {
		return letter(high, unit16Width)
	}
	next := b[unit16Width:]
	if len(next) >= 2 && next[0] == b[0] && next[1] == mark {
		low, _ := hexNumber(next[2:], 4)
		if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
			return letter(r, 2*unit16Width)
		}
	}
	return unit{open: len(next) < unit16Width} // half a character is none
}

// backslash reads the escapes of JSON and of programming languages.
func backslash(b []byte) unit {
	if len(b) == 1 {
		return cut()
	}
	c := b[1]
	if to := escaped[c]; to != 0 {
		return char(to, 2)
	}
	switch {
	case (c == 'u' || c == 'x') && len(b) > 2 && b[2] == '{':
		return braced(b)
	case c == 'u':
		return unit16(b, 'u')
	case c == 'x':
		return hexUnit(b, 2, 2)
	case c == 'U':
		if r, n := hexNumber(b[2:], 8); n == 8 {
			return letter(r, 10)
		} else if 2+n == len(b) {
			return cut()
		}
		return unit{}
	case c == 'n' || c == 'r': // folded text inside a string
		return lineBreak(b, 2, true)
	case c >= '0' && c <= '7':
		return octal(b)
	case (c == '%' || c == '&') && decodeUnit(b[1:]).kind != unitLiteral:
		return unit{} // one escape of its own: a value may hold it behind a backslash
	case c == '%' || c == '&':
		return char(c, 2)
	}
	return unit{}
}

// escaped is what a backslash makes of a byte by itself: of punctuation, as in
// JSON and Markdown, nothing else.
var escaped = func() (to [256]byte) {
	for _, c := range "!\"#$'()*+,-./:;<=>?@[\\]^_`{|}~" {
		to[c] = byte(c)
	}
	to['a'], to['b'], to['t'], to['v'], to['f'] = '\a', '\b', '\t', '\v', '\f'
	return to
}()

// braced reads \u{41} and \x{41}. Zeros in front may be many.
func braced(b []byte) unit {
	value, n := number(b[3:], 16)
	switch end := 3 + n; {
	case end == len(b):
		return cut()
	case n == 0 || b[end] != '}':
		return unit{}
	default:
		return letter(value, end+1)
	}
}

// octal reads \101.
func octal(b []byte) unit {
	value, width := 0, 1
	for width < len(b) && width < 4 && b[width] >= '0' && b[width] <= '7' && value<<3 < 256 {
		value = value<<3 | int(b[width]-'0')
		width++
	}
	u := char(byte(value), width)
	u.open = width == len(b) && width < 4
	return u
}
