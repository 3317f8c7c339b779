package mask

// braceState is where in \u{41} or \x{41} a live answer is. Their brackets end no
// run: all but the last character of a value would show when the rest comes later.
// It is kept beside the buffer, because how much is left in the buffer depends on
// the needles.
type braceState uint8

const (
	braceNone braceState = iota
	braceBackslash
	braceLetter
	braceDigits
)

// next returns the state behind c, and whether c is a bracket of such an escape.
func (s braceState) next(c byte) (next braceState, part bool) {
	_, digit := hexDigit(c)
	switch {
	case c == '\\':
		return braceBackslash, false
	case s == braceBackslash && (c == 'u' || c == 'x'):
		return braceLetter, false
	case s == braceLetter && c == '{':
		return braceDigits, true
	case s == braceDigits && digit:
		return braceDigits, false
	}
	return braceNone, s == braceDigits && c == '}'
}

// part reports whether b[i] is a bracket of such an escape. s is the state in front
// of b[from].
func (s braceState) part(b []byte, from, i int) bool {
	begin := i - len(`\u`)
	switch b[i] {
	case '{':
	case '}':
		for begin = i; begin > from; begin-- {
			if _, digit := hexDigit(b[begin-1]); !digit {
				break
			}
		}
		begin -= len(`\u{`)
	default:
		return false
	}
	if begin > from {
		s = braceNone
	}
	part := false
	for _, c := range b[max(begin, from) : i+1] {
		s, part = s.next(c)
	}
	return part
}
