package mask

import (
	"bytes"
	"cmp"
	"math/bits"
	"slices"
)

// matcher finds many patterns in one pass that looks at a part of the bytes
// only: S. Wu and U. Manber, "A fast algorithm for multi-pattern searching",
// University of Arizona TR-94-17, with blocks of three bytes.
type matcher struct {
	patterns []pattern // sorted by head, for prefix lookups
	minLen   int       // of the heads
	maxLen   int
	mask     uint32
	shift    []uint8
	bucket   [][]int32
}

// headSize is how much of a pattern is kept. The rest of a long one is spelled
// when its head was found: there are some fifty spellings of each needle.
const headSize = 64

// pattern is one spelling of a needle.
type pattern struct {
	head   []byte
	size   int
	source []byte // what spell makes the whole pattern of
	spell  *speller
	needle int
	form   form
	phase  int // for base64: bytes of the group before the needle, 0 to 2
}

// found is a pattern at a place of the text that was searched.
type found struct {
	at      int
	pattern *pattern
}

// blockSize is how many bytes are looked at together.
const blockSize = 3

func (m *matcher) hash(b []byte) uint32 {
	return (uint32(b[0])<<10 ^ uint32(b[1])<<5 ^ uint32(b[2])) & m.mask
}

func newMatcher(patterns []pattern) *matcher {
	slices.SortStableFunc(patterns, func(a, b pattern) int {
		return cmp.Or(bytes.Compare(a.head, b.head), cmp.Compare(a.size, b.size), cmp.Compare(a.form, b.form))
	})
	patterns = slices.CompactFunc(patterns, func(a, b pattern) bool {
		return a.size == b.size && bytes.Equal(a.head, b.head) && (a.size <= headSize || a.spell == b.spell && bytes.Equal(a.source, b.source))
	})
	m := &matcher{patterns: patterns, minLen: headSize}
	if len(patterns) == 0 {
		return m
	}
	for i := range patterns {
		head := patterns[i].head
		m.maxLen, m.minLen = max(m.maxLen, patterns[i].size), min(m.minLen, len(head))
	}
	m.index()
	return m
}

// index fills the tables. A shift skips to where the first minLen bytes of some
// pattern could end.
func (m *matcher) index() {
	// Sixteen entries for each block of a pattern leave most of them unused.
	width := min(16, max(12, bits.Len(uint(16*len(m.patterns)*m.minLen))))
	m.mask, m.shift = 1<<width-1, make([]uint8, 1<<width)
	m.bucket = make([][]int32, 1<<max(6, bits.Len(uint(len(m.patterns)))))
	for i := range m.shift {
		m.shift[i] = uint8(m.minLen - blockSize + 1)
	}
	for i := range m.patterns {
		head := m.patterns[i].head[:m.minLen]
		for j := blockSize; j <= m.minLen; j++ {
			h := m.hash(head[j-blockSize:])
			m.shift[h] = min(m.shift[h], uint8(m.minLen-j))
		}
		h := m.hash(head[m.minLen-blockSize:]) & uint32(len(m.bucket)-1)
		m.bucket[h] = append(m.bucket[h], int32(i))
	}
}

// search appends every place where a whole pattern stands.
func (m *matcher) search(text []byte, out []found) []found {
	if len(m.patterns) == 0 {
		return out
	}
	for i := m.minLen; i <= len(text); {
		h := m.hash(text[i-blockSize : i])
		if skip := int(m.shift[h]); skip > 0 {
			i += skip
			continue
		}
		rest := text[i-m.minLen:]
		for _, p := range m.bucket[h&uint32(len(m.bucket)-1)] {
			if m.patterns[p].begins(rest) {
				out = append(out, found{i - m.minLen, &m.patterns[p]})
			}
		}
		i++
	}
	return out
}

// begins reports whether text begins with the pattern.
func (p *pattern) begins(text []byte) bool {
	if len(text) < p.size || !bytes.HasPrefix(text, p.head) {
		return false
	}
	return p.size == len(p.head) || bytes.HasPrefix(text, p.spell.text(p.source))
}

// isPrefix reports whether some pattern begins with s and is longer.
func (m *matcher) isPrefix(s []byte) bool {
	head := s[:min(len(s), headSize)]
	at, _ := slices.BinarySearchFunc(m.patterns, head, func(p pattern, s []byte) int { return bytes.Compare(p.head, s) })
	for ; at < len(m.patterns) && bytes.HasPrefix(m.patterns[at].head, head); at++ {
		if m.patterns[at].size > len(s) {
			return true
		}
	}
	return false
}

// standing returns the longest pattern that text begins with, nil if there is
// none.
func (m *matcher) standing(text []byte) (longest *pattern) {
	if len(m.patterns) == 0 || len(text) < m.minLen {
		return nil
	}
	h := m.hash(text[m.minLen-blockSize:])
	if m.shift[h] > 0 {
		return nil
	}
	for _, i := range m.bucket[h&uint32(len(m.bucket)-1)] {
		if p := &m.patterns[i]; (longest == nil || p.size > longest.size) && p.begins(text) {
			longest = p
		}
	}
	return longest
}
