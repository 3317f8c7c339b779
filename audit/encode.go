package audit

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// appendJSON appends ev as one line of JSON without its end. encoding/json
// escapes C0 controls and repairs UTF-8; what a terminal would still obey when
// somebody looks at the file (C1 controls, DEL, text direction) is escaped here.
func appendJSON(b []byte, ev *Event) ([]byte, error) {
	data, err := json.Marshal(ev) //nolint:gosec // G117: the field Secret holds a secret's name, never its value
	if err != nil {
		return b, fmt.Errorf("audit event can't be encoded: %w", err)
	}
	for i := 0; i < len(data); {
		if c := data[i]; c < utf8.RuneSelf && c != 0x7f {
			b = append(b, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(data[i:])
		if obeyed(r) { // only inside strings: the rest of JSON is printable ASCII
			b = fmt.Appendf(b, `\u%04x`, r)
		} else {
			b = append(b, data[i:i+n]...)
		}
		i += n
	}
	return b, nil
}

// obeyed reports whether terminals or editors act on r instead of showing it:
// controls, line and paragraph separators, bidirectional controls (Trojan
// Source, CVE-2021-42574), invisible joiners and marks.
func obeyed(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f:
		return true
	case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f:
		return true
	case r == 0x061c, r == 0xfeff, r >= 0xfff9 && r <= 0xfffb:
		return true
	}
	return false
}
