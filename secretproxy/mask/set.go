package mask

import (
	"bytes"
	"slices"
)

// Set is a number of needles, compiled. It is immutable and safe for
// concurrent use.
type Set struct {
	lengths []int
	plain   *matcher
	// folded finds the needles in text made lower case, nil unless asked for.
	folded *matcher
	// literal says that a needle holds bytes which the view decodes, so that
	// the data itself must be searched beside it.
	literal bool
	// shortest is the length of the shortest needle.
	shortest int
	// window is as much of the data as the longest needle takes up in its widest
	// spelling.
	window int
}

const (
	// maxWidth is how many bytes a spelling takes for each byte of a needle.
	maxWidth = 9
	// minWindow is for sets of short needles or none.
	minWindow = 4096
)

// Window is how many bytes of the data are searched together at least.
func (s *Set) Window() int { return s.window }

// keeps is how much a stream keeps between two pieces: two windows that are held
// back, and before them what may be the beginning of a needle.
func (s *Set) keeps() int { return 4 * s.window }

// Options of Compile.
type Options struct {
	// Fold finds needles in any mixture of cases.
	Fold bool
}

// Compile makes a Set. Needles shorter than six bytes are left out: whoever
// makes them refuses such ones earlier.
func Compile(needles [][]byte, o Options) *Set {
	s := &Set{window: minWindow}
	var plain, folded []pattern
	for i, needle := range needles {
		s.lengths = append(s.lengths, len(needle))
		if len(needle) < minPattern {
			continue
		}
		if s.shortest == 0 || len(needle) < s.shortest {
			s.shortest = len(needle)
		}
		s.window = max(s.window, maxWidth*len(needle))
		plain = append(plain, spellings(i, needle)...)
		for _, c := range needle {
			s.literal = s.literal || special[c]
		}
		if o.Fold {
			folded = append(folded, pattern{text: bytes.ToLower(needle), needle: i, form: formCase})
		}
	}
	s.plain = newMatcher(plain)
	if o.Fold {
		s.folded = newMatcher(folded)
	}
	return s
}

// Empty reports whether there is nothing to find.
func (s *Set) Empty() bool { return s == nil || len(s.plain.patterns) == 0 }

// Hit is a needle found.
type Hit struct {
	// Needle is its index in what Compile was given.
	Needle int
	// Exact says that it stands there byte by byte.
	Exact bool
	// start and end are its place in the data, shared base64 characters
	// included.
	start, end int
	pattern    *pattern
	before     byte
	after      byte
	ends       bool
	outside    bool // before stood before the data
	open       bool // the bytes behind it are not there yet
	padded     bool
	percent    bool
	length     int
}

// Encode returns replacement in the spelling of the hit.
func (h *Hit) Encode(replacement []byte) []byte {
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

// scan is the working memory of one search.
type scan struct {
	view    view
	lower   []byte
	found   []found
	tails   []int
	hits    []Hit
	partial []partial
	decoded bool // the view differs from the data
	before  byte
}

// partial is a place from which the data may be the beginning of a needle.
type partial struct {
	raw   int
	depth int // characters of the needle that are there
}

// wipe overwrites what is left of the data.
func (c *scan) wipe() {
	clear(c.view.text[:cap(c.view.text)])
	clear(c.lower[:cap(c.lower)])
}

// align returns the last place up to keep from which the data of the last run
// can be searched by itself: it lies in no escape.
func (c *scan) align(keep int) int {
	if !c.decoded {
		return keep
	}
	return c.view.boundary(keep)
}

// run fills c.hits, in order and without overlap, and c.partial. before is the
// byte that stood before data, 0 if none did.
func (s *Set) run(c *scan, data []byte, before byte) {
	c.before = before
	c.hits, c.partial = c.hits[:0], c.partial[:0]
	decoded := c.view.build(data)
	c.decoded = decoded
	if !decoded || s.literal {
		s.collect(c, s.plain, data, data, nil)
	}
	if decoded {
		s.collect(c, s.plain, c.view.text, data, &c.view)
		if c.view.cut >= 0 {
			c.partial = append(c.partial, partial{c.view.cut, 0})
		}
	}
	if s.folded != nil {
		text, v := data, (*view)(nil)
		if decoded {
			text, v = c.view.text, &c.view
		}
		c.lower = append(c.lower[:0], text...)
		for i, b := range c.lower {
			if 'A' <= b && b <= 'Z' {
				c.lower[i] = b + 'a' - 'A'
			}
		}
		s.collect(c, s.folded, c.lower, data, v)
	}
	c.settle()
}

// collect searches one view.
func (s *Set) collect(c *scan, m *matcher, text, data []byte, v *view) {
	c.found = m.search(text, c.found[:0])
	for _, f := range c.found {
		h := s.hit(f, text, c.before)
		at, end := h.start, h.end
		if v != nil {
			h.start, h.end = v.span(at, end)
			h.percent = bytes.IndexByte(data[h.start:h.end], '%') >= 0
		}
		h.Exact = f.pattern.form == formRaw && h.end-h.start == len(f.pattern.text)
		c.hits = append(c.hits, h)
	}
	if v != nil && v.cut >= 0 {
		text = text[:v.cutText]
	}
	c.tails = m.tail(text, c.tails[:0])
	for _, t := range c.tails {
		raw := t
		if v != nil {
			raw, _ = v.raw(t)
		}
		c.partial = append(c.partial, partial{raw, len(text) - t})
	}
}

// hit describes a pattern that was found in text.
func (s *Set) hit(f found, text []byte, before byte) Hit {
	p := f.pattern
	h := Hit{Needle: p.needle, pattern: p, start: f.at, end: f.at + len(p.text), length: s.lengths[p.needle]}
	if p.form != formBase64 && p.form != formBase64URL {
		return h
	}
	if p.phase > 0 {
		if h.outside = h.start == 0; !h.outside {
			before = text[h.start-1]
		}
		if _, ok := sextet(before); ok {
			h.before = before
			if !h.outside {
				h.start--
			}
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

// settle sorts hits and drops those that lie within an earlier or longer one.
func (c *scan) settle() {
	if len(c.hits) > 1 {
		slices.SortStableFunc(c.hits, func(a, b Hit) int {
			if a.start != b.start {
				return a.start - b.start
			}
			return b.end - a.end
		})
		kept, end := c.hits[:0], -1
		for _, h := range c.hits {
			if h.start >= end {
				kept, end = append(kept, h), h.end
			}
		}
		c.hits = kept
	}
	if len(c.partial) > 1 {
		slices.SortFunc(c.partial, func(a, b partial) int {
			if a.raw != b.raw {
				return a.raw - b.raw
			}
			return b.depth - a.depth
		})
	}
}
