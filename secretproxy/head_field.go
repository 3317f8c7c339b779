package secretproxy

import "bytes"

// splitField takes "Name: value" apart, and nothing looser.
func splitField(line []byte) (name, value []byte, fault *headError) {
	if line[0] == ' ' || line[0] == '\t' {
		return nil, nil, badHead("folded_line", "a field is folded over two lines")
	}
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || !isToken(name) {
		return nil, nil, badHead("field", "a field is not \"Name: value\"")
	}
	value = bytes.Trim(value, " \t")
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return nil, nil, badHead("control_character", "a field holds a control character")
		}
	}
	return name, value, nil
}

func allDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// isToken reports whether b is a token of RFC 9110, section 5.6.2.
func isToken(b []byte) bool {
	for _, c := range b {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0:
		default:
			return false
		}
	}
	return len(b) > 0
}
