package printable

// Obeyed reports whether terminals or editors act on r instead of showing it:
// controls, line and paragraph separators, bidirectional controls (Trojan
// Source, CVE-2021-42574), invisible joiners and marks.
func Obeyed(r rune) bool {
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
