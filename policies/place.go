package policies

import (
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// places maps the path of each key and array element ("egress.allow[1].hosts",
// "egress.allow[1].hosts[0]") to where it stands.
//
// The TOML library gives positions for syntax errors only. This scanner finds
// the rest in text that the library has accepted already: it decodes nothing,
// so a fault in it can misplace a message but never change a policy.
type places map[string]Position

type scanner struct {
	file   string
	s      string
	i      int
	found  places
	counts map[string]int // array of tables → how many headers so far
	lines  []int          // offsets at which lines start
}

// findPlaces scans text, which must be valid TOML.
func findPlaces(file, text string) places {
	sc := &scanner{file: file, s: text, found: places{}, counts: map[string]int{}, lines: lineStarts(text)}
	sc.document()
	return sc.found
}

func (sc *scanner) document() {
	table := ""
	for sc.skip(true); sc.i < len(sc.s); sc.skip(true) {
		start := sc.i
		if sc.s[sc.i] != '[' {
			sc.pair(table)
		} else {
			table = sc.header()
		}
		if sc.i == start { // not TOML after all: never loop
			return
		}
	}
}

// header reads "[a.b]" or "[[a.b]]" and returns the resolved path.
func (sc *scanner) header() string {
	start := sc.i
	array := strings.HasPrefix(sc.s[sc.i:], "[[")
	sc.i++
	if array {
		sc.i++
	}
	keys := sc.keys()
	table := ""
	for n, key := range keys {
		table = joinKey(table, key)
		last := n == len(keys)-1
		if array && last {
			sc.counts[table]++
		}
		sc.mark(table, start)
		if count := sc.counts[table]; count > 0 && (array || !last) {
			table += "[" + strconv.Itoa(count-1) + "]"
			sc.mark(table, start)
		}
	}
	for sc.i < len(sc.s) && sc.s[sc.i] == ']' {
		sc.i++
	}
	return table
}

// pair reads "key = value".
func (sc *scanner) pair(table string) {
	start := sc.i
	path := table
	for _, key := range sc.keys() {
		path = joinKey(path, key)
		sc.mark(path, start)
	}
	sc.skip(false)
	if sc.i < len(sc.s) && sc.s[sc.i] == '=' {
		sc.i++
	}
	sc.skip(false)
	sc.value(path)
}

// keys reads a dotted key up to what ends it.
func (sc *scanner) keys() []string {
	var keys []string
	for sc.i < len(sc.s) {
		sc.skip(false)
		if sc.i >= len(sc.s) {
			break
		}
		start := sc.i
		switch sc.s[sc.i] {
		case '"', '\'':
			sc.str()
			keys = append(keys, unquoteKey(sc.s[start:sc.i]))
		default:
			for sc.i < len(sc.s) && !strings.ContainsRune(" \t.=]\r\n#\"'", rune(sc.s[sc.i])) {
				sc.i++
			}
			keys = append(keys, sc.s[start:sc.i])
		}
		sc.skip(false)
		if sc.i >= len(sc.s) || sc.s[sc.i] != '.' {
			break
		}
		sc.i++
	}
	return keys
}

// value skips one value and marks what it holds.
func (sc *scanner) value(path string) {
	if sc.i >= len(sc.s) {
		return
	}
	switch sc.s[sc.i] {
	case '"', '\'':
		sc.str()
	case '[':
		sc.i++
		for n, last := 0, -1; sc.more(']') && sc.i > last; n++ {
			last = sc.i
			element := path + "[" + strconv.Itoa(n) + "]"
			sc.mark(element, sc.i)
			sc.value(element)
		}
	case '{':
		sc.i++
		for last := -1; sc.more('}') && sc.i > last; {
			last = sc.i
			sc.pair(path)
		}
	default:
		for sc.i < len(sc.s) && !strings.ContainsRune(",]}#\r\n", rune(sc.s[sc.i])) {
			sc.i++
		}
	}
}

// more moves to the next element of an array or inline table, past white space,
// comments and a comma; at the closing character it steps over it and says no.
func (sc *scanner) more(closing byte) bool {
	for sc.i < len(sc.s) {
		sc.skip(true)
		if sc.i < len(sc.s) && sc.s[sc.i] == ',' {
			sc.i++
			continue
		}
		break
	}
	if sc.i >= len(sc.s) {
		return false
	}
	if sc.s[sc.i] == closing {
		sc.i++
		return false
	}
	return true
}

// str skips a string of any of the four kinds.
func (sc *scanner) str() { sc.i += stringLength(sc.s[sc.i:]) }

// skip moves past blanks and, with lines, past line ends and comments.
func (sc *scanner) skip(lines bool) {
	for sc.i < len(sc.s) {
		switch c := sc.s[sc.i]; {
		case c == ' ' || c == '\t':
			sc.i++
		case lines && (c == '\n' || c == '\r'):
			sc.i++
		case lines && c == '#':
			sc.i += lineLength(sc.s[sc.i:])
		default:
			return
		}
	}
}

// mark records where path stands, the first time it does.
func (sc *scanner) mark(path string, at int) {
	if _, ok := sc.found[path]; ok {
		return
	}
	line := sort.SearchInts(sc.lines, at+1) // lines that start at or before at
	col := utf8.RuneCountInString(sc.s[sc.lines[line-1]:at]) + 1
	sc.found[path] = Position{File: sc.file, Line: line, Col: col}
}

// positionAt returns the place of the byte at offset, which may be the end.
func positionAt(file, text string, offset int) Position {
	before := text[:min(max(offset, 0), len(text))]
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return Position{File: file, Line: strings.Count(before, "\n") + 1, Col: utf8.RuneCountInString(line) + 1}
}

func lineStarts(text string) []int {
	starts := []int{0}
	for i := range len(text) {
		if text[i] == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// of returns the place of path, or of the nearest thing around it.
func (p places) of(path string) Position {
	for path != "" {
		if pos, ok := p[path]; ok {
			return pos
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return Position{}
}

// maxKeyShown bounds a key within a path. Every key and element of a file gets
// its path, so one endless key would be copied as often as there are lines.
const maxKeyShown = 64

// joinKey appends one key to a path, quoted where TOML would quote it. Long keys
// are cut: paths are for messages.
func joinKey(path, key string) string {
	if len(key) > maxKeyShown {
		key = strings.ToValidUTF8(key[:maxKeyShown], "") + "…"
	}
	if key = quoteKey(key); path == "" {
		return key
	}
	return path + "." + key
}

// quoteKey puts quotes around a key that isn't bare in TOML.
func quoteKey(key string) string {
	bare := key != ""
	for _, r := range key {
		bare = bare && (isAlnum(r) || r == '_' || r == '-')
	}
	if bare {
		return key
	}
	return tomlString(key)
}

// unquoteKey decodes a quoted key as far as a place needs it.
func unquoteKey(s string) string {
	if strings.HasPrefix(s, "\"") {
		if u, err := strconv.Unquote(s); err == nil {
			return u
		}
	}
	return strings.Trim(s, "\"'")
}
