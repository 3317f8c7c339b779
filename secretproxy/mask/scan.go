package mask

import (
	"bytes"
	"cmp"
	"slices"
)

// scan is the working memory of one search.
type scan struct {
	views   []*view // of the data, the first used of them; parents come first
	used    int
	lower   []byte
	found   []found
	sums    sums
	tails   []int
	hits    []Hit
	partial []partial
	data    []byte
	whole   bool // no data follows, so that nobody asks for partial
}

// partial is a place from which the data may be the beginning of a needle.
type partial struct {
	raw   int
	depth int // characters of the needle that are there
}

// maxStretch is longer than an escape of an escape.
const maxStretch = 512

// maxUnit is longer than every escape whose zeros are collapsed.
const maxUnit = 64

// maxDepth is how many escapes are undone one after another: a value's own, and
// two that others put around it.
const maxDepth = 3

// wipe overwrites what is left of the data.
func (c *scan) wipe() {
	for _, v := range c.views {
		clear(v.text[:cap(v.text)])
	}
	clear(c.lower[:cap(c.lower)])
	clear(c.sums.kept[:cap(c.sums.kept)])
	c.sums.text = nil
}

// align returns the last place up to keep from which the data of the last run
// can be searched by itself: it lies in no escape. Within a long stretch of what
// is overlooked, any place will do.
func (c *scan) align(keep int) int {
	for last := keep; ; {
		at := last
		for _, v := range c.views[:c.used] {
			at = v.align(at)
		}
		if at == last || at < keep-maxStretch {
			return max(at, keep-maxStretch)
		}
		last = at
	}
}

// run fills c.hits, in order and without overlap, and c.partial.
func (s *Set) run(c *scan, data []byte) {
	c.hits, c.partial, c.used = c.hits[:0], c.partial[:0], 0
	c.data = data
	decoded := s.undo(c, nil, data, len(data), 0)
	if !decoded || s.literal {
		s.collect(c, data, nil, len(data))
	} else {
		s.swallowed(c, data, c.views[0])
	}
	c.settle()
}

// swallowed looks for needles that begin within what the first view takes for an
// escape: text before a value can end in % or a backslash (attack: a guest has a
// server repeat %PLACEHOLDER).
func (s *Set) swallowed(c *scan, data []byte, v *view) {
	from, to := 0, 0 // where one may be
	look := func(at int) {
		if !s.plain.mayBegin(data[at:]) {
			return
		}
		if at > to {
			s.match(c, data, from, to, nil)
			from = at
		}
		to = min(at+s.plain.maxLen, len(data))
	}
	breaks := v.breaks
	for _, unit := range v.segments {
		for ; len(breaks) > 0 && breaks[0] < unit.raw; breaks = breaks[1:] {
			look(breaks[0] + 1)
		}
		for at := unit.raw + 1; at < unit.raw+unit.width; at++ {
			look(at)
		}
	}
	for _, at := range breaks {
		look(at + 1)
	}
	s.match(c, data, from, to, nil)
	if to == len(data) {
		s.tails(c, data, from, nil)
	}
}

// undo searches the views of a text, and theirs: the escapes undone, and those of
// quoted-printable. Each is made only where the one before changed something.
// Behind limit, text may go on differently when more data comes.
func (s *Set) undo(c *scan, parent *view, text []byte, limit, depth int) (decoded bool) {
	if depth == maxDepth {
		return false
	}
	lenses, mixed := s.lenses, false
	if parent != nil && parent.lens.own() {
		lenses = allLenses[:]
	}
	for i := 0; i < len(lenses); i++ {
		l := lenses[i]
		if !l.follows(parent, depth) && (!mixed || !l.own()) {
			continue
		}
		v := c.view()
		v.parent, v.margin, v.heads = parent, 0, nil
		if l == lensAll {
			v.heads = s.plain
		}
		if depth > 0 || l != lensAll {
			v.margin = s.plain.maxLen + maxUnit
		}
		changed := v.build(l, text, limit)
		if v.cut >= 0 {
			at := v.cut
			if parent != nil {
				at = parent.dataAt(at)
			}
			c.partial = append(c.partial, partial{at, 0})
			if !changed || !v.toEnd { // it will, once the escape is whole
				begin := text[:min(limit, v.cut)]
				s.tails(c, begin, 0, parent)
				if !changed { // and then there may be another one to undo, cut off too
					s.undo(c, parent, begin, len(begin), depth+1)
				}
			}
		}
		if !changed {
			c.used--
			continue
		}
		if l == lensAll {
			decoded = true
			if mixed = v.mixed; mixed {
				lenses = allLenses[:]
			}
		}
		inner := len(v.text)
		if v.cut >= 0 {
			inner = v.cutText
		}
		if limit < len(text) {
			_, at := v.boundary(limit)
			inner = min(inner, at)
		}
		s.collect(c, v.text, v, inner)
		s.undo(c, v, v.text, inner, depth+1)
	}
	return decoded
}

// follows reports whether a view of that lens is made of a view at a depth, for
// needles that hold escapes.
func (l lens) follows(parent *view, depth int) bool {
	if l == lensQuoted {
		return depth == 0 || depth == 1 && parent != nil
	}
	if l == lensAll {
		return parent == nil || parent.lens == lensQuoted || parent.lens == lensAll && parent.special
	}
	return depth == 0 || depth == 1 && (parent == nil || parent.lens != lensAll) ||
		l == lensBreaks && parent != nil && parent.lens == lensQuoted
}

// view returns the next view to be filled.
func (c *scan) view() *view {
	if c.used == len(c.views) {
		c.views = append(c.views, new(view))
	}
	c.used++
	return c.views[c.used-1]
}

// collect searches the data, or one view of it.
func (s *Set) collect(c *scan, text []byte, v *view, limit int) {
	last := 0
	if v != nil {
		for _, next := range v.regions {
			s.match(c, text, last, next, v)
			last = next
		}
	}
	s.match(c, text, last, len(text), v)
	if v == nil || v.toEnd {
		s.tails(c, text[:limit], min(last, limit), v)
	}
}

// match searches one region of it.
func (s *Set) match(c *scan, text []byte, from, to int, v *view) {
	text = text[:to]
	c.found = s.plain.search(&c.sums, text[from:], c.found[:0])
	if s.folded != nil {
		c.found = s.folded.search(&c.sums, toLower(c, text[from:]), c.found)
	}
	for _, f := range c.found {
		f.at += from
		h := s.hit(f, text)
		at, end := h.start, h.end
		h.start, h.end = v.span(at, end)
		h.percent = v != nil && bytes.IndexByte(c.data[h.start:h.end], '%') >= 0
		h.Exact = f.pattern.form == formRaw && h.end-h.start == f.pattern.size
		c.hits = append(c.hits, h)
	}
}

// tails notes where the end of a text may be the beginning of a needle.
func (s *Set) tails(c *scan, text []byte, from int, v *view) {
	if c.whole {
		return
	}
	c.tails = s.plain.tail(text[from:], c.tails[:0])
	if s.folded != nil {
		c.tails = s.folded.tail(toLower(c, text[from:]), c.tails)
	}
	for _, t := range c.tails {
		raw, _ := v.span(from+t, from+t+1)
		c.partial = append(c.partial, partial{raw, len(text) - from - t})
	}
}

// toLower returns ASCII text in lower case. The next call overwrites it.
func toLower(c *scan, text []byte) []byte {
	c.lower = append(c.lower[:0], text...)
	for i, b := range c.lower {
		if 'A' <= b && b <= 'Z' {
			c.lower[i] = b + 'a' - 'A'
		}
	}
	return c.lower
}

// settle sorts hits. Those that overlap become one, so that no part of a needle
// is left between two replacements.
func (c *scan) settle() {
	if len(c.hits) > 1 {
		slices.SortStableFunc(c.hits, func(a, b Hit) int {
			return cmp.Or(a.start-b.start, b.end-a.end)
		})
		kept := c.hits[:1]
		for _, h := range c.hits[1:] {
			last := &kept[len(kept)-1]
			switch {
			case h.start >= last.end:
				kept = append(kept, h)
			case h.end > last.end:
				last.Clash = last.Clash || h.Needle != last.Needle
				last.end, last.Exact, last.open = h.end, false, h.open
			}
		}
		c.hits = kept
	}
	slices.SortFunc(c.partial, func(a, b partial) int { return cmp.Or(a.raw-b.raw, b.depth-a.depth) })
}
