package mask

import (
	"bytes"
	"cmp"
	"crypto/subtle"
	"slices"
)

// matcher finds many patterns in one pass that looks at some places of the text
// only. How long that takes tells nothing about a value of which eight
// characters in a row are unknown (attack: a server sends guesses, and the guest
// takes the time): a place counts when a whole sample of a pattern stands there,
// and not the first bytes of one.
type matcher struct {
	patterns []pattern // sorted by head, for prefix lookups
	maxLen   int
	minLen   int // of the heads
	lanes    []lane
}

// headSize is how much of a pattern is kept, since there are some fifty spellings of
// each needle. The rest of a long one is known by its sum.
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
	// sum is of the whole pattern, if it is longer than its head, and power that of
	// the sums' base.
	sum, power uint64
}

// found is a pattern at a place of the text that was searched.
type found struct {
	at      int
	pattern *pattern
}

func newMatcher(patterns []pattern, base uint64) *matcher {
	slices.SortStableFunc(patterns, func(a, b pattern) int {
		return cmp.Or(bytes.Compare(a.head, b.head), cmp.Compare(a.size, b.size), cmp.Compare(a.form, b.form))
	})
	patterns = slices.CompactFunc(patterns, func(a, b pattern) bool {
		return a.size == b.size && bytes.Equal(a.head, b.head) && (a.size <= headSize || a.spell == b.spell && bytes.Equal(a.source, b.source))
	})
	m := &matcher{patterns: patterns, minLen: headSize}
	for i := range patterns {
		p := &patterns[i]
		m.maxLen, m.minLen = max(m.maxLen, p.size), min(m.minLen, len(p.head))
		if p.size > len(p.head) && p.power == 0 {
			p.sum, p.power = total(base, p.spell.text(p.source))
		}
	}
	m.lanes = newLanes(patterns)
	return m
}

// search appends every place where a whole pattern stands.
func (m *matcher) search(text *sums, out []found) []found {
	for i := range m.lanes {
		out = m.lanes[i].search(m.patterns, text, out)
	}
	return out
}

// at reports whether the pattern stands at a place of the text. It takes the
// same time wherever the text differs.
func (p *pattern) at(text *sums, at int) bool {
	if len(text.text)-at < p.size {
		return false
	}
	if p.size == len(p.head) {
		return same(text.text[at:], p.head)
	}
	return text.of(at, at+p.size, p.power) == p.sum
}

func same(text, begin []byte) bool { return subtle.ConstantTimeCompare(text[:len(begin)], begin) == 1 }

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
