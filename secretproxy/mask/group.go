package mask

import "slices"

// group is the matchers of a set. Those of a set that others are added to are
// shared: of all sets of a sandbox, which gets a value with each grant, each value
// is compiled once, and moved to a larger matcher a few times.
type group struct {
	matchers []*matcher      // each has more patterns than the next one, or is the only one
	pairs    [1 << 10]uint64 // pairs of bytes that a pattern starts with
	base     uint64          // of sums
	maxLen   int
	minLen   int // of the heads
}

const (
	// groupRatio is by how much each matcher of a group is larger than the next:
	// every text is searched by each of them.
	groupRatio = 8
	// groupLeast is the patterns of a few needles, which one matcher finds.
	groupLeast = 1 << 11
)

// with returns a group that finds patterns too.
func (g *group) with(patterns []pattern) *group {
	if len(patterns) == 0 {
		return g
	}
	next := &group{pairs: g.pairs, base: g.base}
	for i := range patterns {
		head := patterns[i].head
		pair := int(head[0])<<8 | int(head[1])
		next.pairs[pair>>6] |= 1 << (pair & 63)
	}
	rest := g.matchers
	for len(rest) > 0 {
		last := rest[len(rest)-1].patterns
		if n := len(last) + len(patterns); n > groupLeast && len(last) >= groupRatio*len(patterns) {
			break
		}
		patterns, rest = slices.Concat(last, patterns), rest[:len(rest)-1]
	}
	next.matchers = append(slices.Clone(rest), newMatcher(patterns, g.base))
	next.minLen = headSize
	for _, m := range next.matchers {
		next.maxLen, next.minLen = max(next.maxLen, m.maxLen), min(next.minLen, m.minLen)
	}
	return next
}

// search appends every place where a whole pattern stands.
func (g *group) search(s *sums, text []byte, out []found) []found {
	s.reset(g.base, text)
	for _, m := range g.matchers {
		out = m.search(s, out)
	}
	return out
}

// tail appends the places from which the rest of the text is the beginning of
// a pattern that needs more bytes, as far as its head tells.
func (g *group) tail(text []byte, out []int) []int {
	for i := max(0, len(text)-g.maxLen+1); i < len(text); i++ {
		if g.mayBegin(text[i:]) && g.isPrefix(text[i:]) {
			out = append(out, i)
		}
	}
	return out
}

// mayBegin is false if no pattern begins with the first two bytes of text.
func (g *group) mayBegin(text []byte) bool {
	if len(text) < 2 {
		return true
	}
	pair := int(text[0])<<8 | int(text[1])
	return g.pairs[pair>>6]>>(pair&63)&1 != 0
}

// isPrefix reports whether some pattern begins with s and is longer.
func (g *group) isPrefix(s []byte) bool {
	return slices.ContainsFunc(g.matchers, func(m *matcher) bool { return m.isPrefix(s) })
}
