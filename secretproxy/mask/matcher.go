package mask

import (
	"bytes"
	"cmp"
	"slices"
)

// matcher finds many patterns in one pass that looks at a part of the bytes
// only: S. Wu and U. Manber, "A fast algorithm for multi-pattern searching",
// University of Arizona TR-94-17, with blocks of two bytes.
type matcher struct {
	patterns []pattern // sorted by text, for prefix lookups
	minLen   int
	maxLen   int
	first    [256]bool // bytes that a pattern starts with
	shift    [tableSize]uint8
	bucket   [tableSize][]int32
}

// tableSize keeps the shift table within a processor's first-level cache.
const tableSize = 4096

// pattern is one spelling of a needle.
type pattern struct {
	text   []byte
	needle int
	form   form
	phase  int // for base64: bytes of the group before the needle, 0 to 2
}

// found is a pattern at a place of the text that was searched.
type found struct {
	at      int
	pattern *pattern
}

func blockHash(a, b byte) int { return (int(a)<<5 ^ int(b)) & (tableSize - 1) }

func newMatcher(patterns []pattern) *matcher {
	slices.SortFunc(patterns, func(a, b pattern) int {
		return cmp.Or(bytes.Compare(a.text, b.text), cmp.Compare(a.form, b.form))
	})
	patterns = slices.CompactFunc(patterns, func(a, b pattern) bool { return bytes.Equal(a.text, b.text) })
	m := &matcher{patterns: patterns}
	for i := range patterns {
		n := len(patterns[i].text)
		m.maxLen = max(m.maxLen, n)
		if m.minLen == 0 || n < m.minLen {
			m.minLen = n
		}
		m.first[patterns[i].text[0]] = true
	}
	if len(patterns) == 0 {
		return m
	}
	// A shift skips to where the first minLen bytes of some pattern could end.
	m.minLen = min(m.minLen, 255)
	for i := range m.shift {
		m.shift[i] = uint8(m.minLen - 1)
	}
	for i := range patterns {
		text := patterns[i].text
		for j := 1; j < m.minLen; j++ {
			h := blockHash(text[j-1], text[j])
			m.shift[h] = min(m.shift[h], uint8(m.minLen-1-j))
		}
		h := blockHash(text[m.minLen-2], text[m.minLen-1])
		m.bucket[h] = append(m.bucket[h], int32(i))
	}
	return m
}

// search appends every place where a whole pattern stands.
func (m *matcher) search(text []byte, out []found) []found {
	if len(m.patterns) == 0 {
		return out
	}
	for i := m.minLen - 1; i < len(text); {
		h := blockHash(text[i-1], text[i])
		if skip := int(m.shift[h]); skip > 0 {
			i += skip
			continue
		}
		start := i - m.minLen + 1
		for _, p := range m.bucket[h] {
			if bytes.HasPrefix(text[start:], m.patterns[p].text) {
				out = append(out, found{start, &m.patterns[p]})
			}
		}
		i++
	}
	return out
}

// tail appends the places from which the rest of the text is the beginning of
// a pattern that needs more bytes.
func (m *matcher) tail(text []byte, out []int) []int {
	for i := max(0, len(text)-m.maxLen+1); i < len(text); i++ {
		if m.first[text[i]] && m.isPrefix(text[i:]) {
			out = append(out, i)
		}
	}
	return out
}

// isPrefix reports whether some pattern begins with s and is longer.
func (m *matcher) isPrefix(s []byte) bool {
	at, exact := slices.BinarySearchFunc(m.patterns, s, func(p pattern, s []byte) int { return bytes.Compare(p.text, s) })
	if exact {
		at++
	}
	return at < len(m.patterns) && bytes.HasPrefix(m.patterns[at].text, s)
}
