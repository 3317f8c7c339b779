package printable

import "testing"

// TestI17_QuotedWordsHoldNoColumns: a table separates its columns by two spaces or more.
func TestI17_QuotedWordsHoldNoColumns(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"":                                  `""`,
		"the build":                         `"the build"`,
		" a    b\t\tc\nd\r\n":               `"a b c d"`,
		"a\u3000\u00a0\u2003b":              `"a b"`,
		"a\u2800\u3164\u115f\u1160\uffa0b":  `"a b"`,
		`said "yes"`:                        `"said \"yes\""`,
		"\x1b[2J\u202e\u200b\xff\U000e0041": `"\x1b[2J\u202e\u200b\xff\U000e0041"`,
		"für den Bau: 建":                    `"für den Bau: 建"`,
	} {
		if got := Quoted(from); got != want {
			t.Errorf("%q: %s; want %s", from, got, want)
		}
	}
}
