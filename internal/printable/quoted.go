package printable

import (
	"strconv"
	"strings"
	"unicode"
)

// Quoted is s in quotes on one line, as strconv.Quote has it, with each run of blanks as one space. It is for the words of
// somebody who isn't trusted among others: with blanks of their own choice they could look like a row of the table that they
// are in, once a terminal wraps them.
func Quoted(s string) string {
	return strconv.Quote(strings.Join(strings.FieldsFunc(s, blank), " "))
}

// blank reports whether r shows nothing but takes a place. Beside spaces these are the fillers of Hangul and the empty
// Braille pattern, which Unicode has as letters and symbols.
func blank(r rune) bool {
	switch r {
	case 0x115f, 0x1160, 0x3164, 0xffa0, 0x2800:
		return true
	}
	return unicode.IsSpace(r)
}
