package mask

import "bytes"

// unit is what a special byte begins.
type unit struct {
	kind  unitKind
	value byte
	width int
}

type unitKind uint8

const (
	unitLiteral unitKind = iota // stands for itself
	unitByte                    // stands for value
	unitSkip                    // overlooked
	unitCut                     // can't be told before more bytes came
)

// longest escapes: \u0041 and &#x0041; with a little room.
const maxEntity = 9

// decodeUnit reads the unit at the start of b, whose first byte is special.
func decodeUnit(b []byte) unit {
	switch b[0] {
	case '\r', '\n', 0: // 0: the other half of a UTF-16 character
		return unit{unitSkip, 0, 1}
	case '%':
		return hexUnit(b, 1, 2)
	case '\\':
		return backslash(b)
	case '&':
		return entity(b)
	}
	return unit{}
}

// hexUnit reads digits hexadecimal digits behind a prefix of skip bytes.
func hexUnit(b []byte, skip, digits int) unit {
	value := 0
	for i := skip; i < skip+digits; i++ {
		if i == len(b) {
			return unit{kind: unitCut}
		}
		d, ok := hexDigit(b[i])
		if !ok {
			return unit{}
		}
		value = value<<4 | d
	}
	if value > 0xff {
		return unit{}
	}
	return unit{unitByte, byte(value), skip + digits}
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

// backslash reads the escapes of JSON, and \x41 of other languages.
func backslash(b []byte) unit {
	if len(b) == 1 {
		return unit{kind: unitCut}
	}
	switch b[1] {
	case 'u':
		return hexUnit(b, 2, 4)
	case 'x':
		return hexUnit(b, 2, 2)
	case 'n', 'r': // a wrapped base64 text inside a JSON string
		return unit{unitSkip, 0, 2}
	case 't':
		return unit{unitByte, '\t', 2}
	case '"', '\\', '/', '\'':
		return unit{unitByte, b[1], 2}
	}
	return unit{}
}

// entity reads HTML character references that stand for one ASCII character.
func entity(b []byte) unit {
	end := bytes.IndexByte(b[:min(len(b), maxEntity)], ';')
	if end < 0 {
		if len(b) < maxEntity && plausibleEntity(b[1:]) {
			return unit{kind: unitCut}
		}
		return unit{}
	}
	switch string(b[1:end]) {
	case "amp":
		return unit{unitByte, '&', end + 1}
	case "lt":
		return unit{unitByte, '<', end + 1}
	case "gt":
		return unit{unitByte, '>', end + 1}
	case "quot":
		return unit{unitByte, '"', end + 1}
	case "apos":
		return unit{unitByte, '\'', end + 1}
	}
	return numericEntity(b[1:end], end+1)
}

func plausibleEntity(b []byte) bool {
	for _, c := range b {
		if _, ok := sextet(c); !ok && c != '#' {
			return false
		}
	}
	return true
}

func numericEntity(name []byte, width int) unit {
	if len(name) < 2 || name[0] != '#' {
		return unit{}
	}
	digits, base := name[1:], 10
	if digits[0] == 'x' || digits[0] == 'X' {
		digits, base = digits[1:], 16
	}
	value := 0
	for _, c := range digits {
		d, ok := hexDigit(c)
		if !ok || d >= base {
			return unit{}
		}
		value = value*base + d
	}
	if len(digits) == 0 || value > 0xff {
		return unit{}
	}
	return unit{unitByte, byte(value), width}
}
