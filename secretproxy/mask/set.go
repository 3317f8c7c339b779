package mask

import (
	"bytes"
	"slices"
)

// Set is a number of needles, compiled. It is immutable and safe for
// concurrent use.
type Set struct {
	lengths []int
	plain   *group
	// folded finds the needles in text made lower case, nil unless asked for.
	folded *group
	// literal says that a needle holds bytes which the view decodes, so that
	// the data itself must be searched beside it.
	literal bool
	lenses  []lens // of the views in which needles are sought
	// shortest is the length of the shortest needle.
	shortest int
	// window is as much of the data as the longest needle takes up in its widest
	// spelling.
	window int
	later  *stage // nil: there is no other
}

// next returns the set of the next stage.
func (s *Set) next() *Set {
	if s.later == nil {
		return nil
	}
	return s.later.set
}

const (
	// maxWidth is how many bytes a spelling takes for each byte of a needle.
	// &amp;#x0041; takes 12, \\\\u0041 8; the widest that is written is an escape of
	// every character of \u0041.
	maxWidth = 64
	// minWindow is for sets of short needles or none.
	minWindow = 1024
)

// step is what slides through a window at once.
func (s *Set) step() int { return s.window / 4 }

// context is how much a stream keeps between two pieces: a window that is held
// back, and before it what may be the beginning of a needle.
func (s *Set) context() int { return 2*s.window + s.step() }

// Options of Compile.
type Options struct {
	// Fold finds needles in any mixture of cases.
	Fold bool
}

// Compile makes a Set. Needles shorter than six bytes are left out: whoever
// makes them refuses such ones earlier.
func Compile(needles [][]byte, o Options) *Set {
	s := &Set{window: minWindow, lenses: allLenses[:2], plain: &group{minLen: headSize, base: newBase()}}
	if o.Fold {
		s.folded = &group{minLen: headSize, base: newBase()}
	}
	return s.Add(needles)
}

// Add returns a Set that finds more needles, whose indices follow those of s. What
// s has compiled is shared.
func (s *Set) Add(needles [][]byte) *Set {
	next := *s
	next.lengths = slices.Clone(s.lengths)
	var plain, folded []pattern
	for _, needle := range needles {
		i := len(next.lengths)
		next.lengths = append(next.lengths, len(needle))
		if len(needle) < minPattern {
			continue
		}
		if next.shortest == 0 || len(needle) < next.shortest {
			next.shortest = len(needle)
		}
		next.window = max(next.window, maxWidth*len(needle))
		plain = append(plain, spellings(i, needle)...)
		for _, part := range parts(needle) {
			plain = append(plain, pattern{head: part[:min(len(part), headSize)], size: len(part), source: part, spell: itself, needle: i, form: formCase})
		}
		for _, c := range needle {
			next.literal = next.literal || special[c]
			if lensBreaks.leaves(c) && len(next.lenses) == 2 {
				next.lenses = allLenses[:]
			}
		}
		if s.folded != nil {
			lower := bytes.ToLower(needle)
			folded = append(folded, pattern{head: lower[:min(len(lower), headSize)], size: len(lower), source: lower, spell: itself, needle: i, form: formCase})
		}
	}
	next.plain = s.plain.with(plain)
	if s.folded != nil {
		next.folded = s.folded.with(folded)
	}
	return &next
}

// Empty reports whether there is nothing to find.
func (s *Set) Empty() bool { return s == nil || len(s.plain.matchers) == 0 && s.later == nil }

// Hit is a needle found.
type Hit struct {
	// Needle is its index in what Compile was given.
	Needle int
	// Exact says that it stands there byte by byte.
	Exact bool
	// Clash says that another needle overlaps it in part, and is replaced with it.
	Clash bool
	// start and end are its place in the data, shared base64 characters
	// included.
	start, end int
	pattern    *pattern
	before     byte
	after      byte
	ends       bool
	open       bool // the bytes behind it are not there yet
	padded     bool
	percent    bool
	length     int
}

// encode returns replacement in the spelling of the hit.
func (h *Hit) encode(replacement []byte) []byte {
	out := recode(h, replacement)
	if !h.isBase64() {
		return out
	}
	for h.padded && (h.groupChars()+len(out))%4 != 0 {
		out = append(out, '=')
	}
	if h.percent {
		for from, to := range map[string]string{"+": "%2B", "/": "%2F", "=": "%3D"} {
			out = bytes.ReplaceAll(out, []byte(from), []byte(to))
		}
	}
	return out
}

func (h *Hit) isBase64() bool {
	return h.pattern.form == formBase64 || h.pattern.form == formBase64URL
}

// leadBits is how many bits of the first shared character belong to what
// stands before the needle; 0 if there is no shared character.
func (h *Hit) leadBits() int { return h.pattern.phase * 8 % 6 }

// groupChars is how many characters of the first group of four stand before
// the hit.
func (h *Hit) groupChars() int {
	n := h.pattern.phase * 8 / 6
	if h.leadBits() > 0 && h.before == 0 {
		n++
	}
	return n
}

// hit describes a pattern that was found in text.
func (s *Set) hit(f found, text []byte) Hit {
	p := f.pattern
	h := Hit{Needle: p.needle, pattern: p, start: f.at, end: f.at + p.size, length: s.lengths[p.needle]}
	if p.form != formBase64 && p.form != formBase64URL {
		return h
	}
	if p.phase > 0 && h.start > 0 {
		if _, ok := sextet(text[h.start-1]); ok {
			h.start--
			h.before = text[h.start]
		}
	}
	shared := (p.phase+h.length)*8%6 != 0
	if shared && h.end < len(text) {
		if _, ok := sextet(text[h.end]); ok {
			h.after = text[h.end]
			h.end++
		}
	}
	h.open = !h.ending(text)
	return h
}

// ending looks behind a base64 hit: if the base64 text ends there, its padding
// is made part of the hit. It reports whether enough bytes were there to see.
func (h *Hit) ending(text []byte) bool {
	if h.end < len(text) {
		if _, ok := sextet(text[h.end]); ok {
			return true
		}
	}
	h.ends = true
	for h.end < len(text) && text[h.end] == '=' {
		h.padded = true
		h.end++
	}
	// Text that ends on a whole group can't be told from unpadded text. A
	// replacement that needs padding gets it: some decoders insist.
	if (h.pattern.phase+h.length)%3 == 0 {
		h.padded = true
	}
	return h.end < len(text)
}
