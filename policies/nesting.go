package policies

import (
	"fmt"
	"strings"
)

const (
	// maxNesting is how deep brackets may stand in brackets. The deepest value
	// of a policy is a list in an inline table.
	maxNesting = 16
	// maxDots is how many dots may stand on a line outside strings; the
	// longest key of a policy has three parts.
	maxDots = 32
)

// maxKey is the longest part of a key in bytes: a host name fits.
const maxKey = 256

// checkNesting refuses text whose keys would cost the TOML library memory out
// of proportion: it keeps the whole path of every key, and a megabyte of open
// brackets, of dotted keys or of short keys below a long one was seen to take
// gigabytes. It agrees with the library on where strings and comments end in
// every text that is valid so far, and the library stops at the first that
// isn't. at is the offset of the fault.
func checkNesting(text string) (at int, err error) {
	depth, dots, word := 0, 0, 0
	header := false // within a line that starts with a bracket
	blank := true   // nothing but blanks on this line so far
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '[' && blank {
			header = true
		}
		blank = c == '\n' || blank && (c == ' ' || c == '\t')
		if isAlnum(rune(c)) || c == '_' || c == '-' {
			word++
		} else {
			word = 0
		}
		switch c {
		case '\n':
			dots, header = 0, false
		case '#':
			i += lineLength(text[i:]) - 1
		case '"', '\'':
			n := stringLength(text[i:])
			if n > maxKey && (header || isKey(text[i+n:])) {
				word = n
			}
			i += n - 1
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case '.':
			dots++
		}
		switch {
		case depth > maxNesting:
			return i, fmt.Errorf("more than %d brackets in each other", maxNesting)
		case dots > maxDots:
			return i, fmt.Errorf("more than %d dots on one line", maxDots)
		case word > maxKey:
			return i, fmt.Errorf("a key of more than %d characters", maxKey)
		}
	}
	return 0, nil
}

// isKey reports whether what follows a string makes it a part of a key.
func isKey(after string) bool {
	after = strings.TrimLeft(after, " \t")
	return after != "" && (after[0] == '=' || after[0] == '.')
}

// lineLength is the length of the line that s starts with, without its end.
func lineLength(s string) int {
	if n := strings.IndexByte(s, '\n'); n >= 0 {
		return n
	}
	return len(s)
}

// stringLength is the length of the TOML string, of any of the four kinds, that
// s starts with, quotes included. A string on one line ends with it at the
// latest.
func stringLength(s string) int {
	quote, long := s[:1], false
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s, triple) {
		quote, long = triple, true
	}
	for i := len(quote); i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote[0] == '"':
			i++
		case s[i] == '\n' && !long:
			return i
		case strings.HasPrefix(s[i:], quote):
			i += len(quote)
			for extra := 0; long && extra < 2 && i < len(s) && s[i] == quote[0]; extra++ {
				i++ // up to two quotes may stand before the closing three
			}
			return i
		}
	}
	return len(s)
}
