package mask

import (
	"bytes"
	"sort"
)

// view is a text with the escapes of single characters undone, and the way back
// to the places in the text it was made of.
type view struct {
	text     []byte
	segments []segment
	// cut is where an escape begins that the source doesn't hold to its end, and
	// cutText its place in text: with more data, text goes on differently from
	// there. -1 if there is none.
	cut, cutText int
	parent       *view // whose text this one was made of; nil: of the data
	lens         lens  // which escapes are undone
	// margin is how much is copied around a unit, 0 for everything: what is
	// farther away was searched in the source. Each of regions is where the copy
	// goes on somewhere else; toEnd says that it goes to the source's end.
	margin  int
	regions []int
	toEnd   bool
	breaks  []int // where the source has a line break as a string does, \n
	special bool  // the text holds special bytes: there may be more to undo
	// mixed says that an escape of one kind may take in the beginning of a needle
	// that is written with those of another.
	mixed bool
	heads *group  // of the needles; nil: nobody asks for mixed
	last  segment // the last unit
	kind  uint8   // what begins the last unit
	// marks are the places of special bytes in the text of a view without margin:
	// a view of it looks at them alone.
	marks, ahead []int
	finder       finder
}

// segment maps a run of the view to its source: one unit of width bytes, or
// bytes that stand for themselves (width 1).
type segment struct{ text, raw, width int }

// specials are the bytes that may begin a spelling of another byte, or are
// overlooked.
const specials = "%\\&\r\n\x00"

var special = func() (of [256]bool) {
	for i := range len(specials) {
		of[specials[i]] = true
	}
	return of
}()

// finder goes from one special byte of a text to the next. It remembers where the
// next one of each kind is, so that every byte is looked at a few times, many at
// once: this is what a long body spends most of its time in.
type finder struct {
	// ahead has the place of the next one of each kind, and the kind in the lowest
	// bits: the smallest of them is the first one.
	ahead [len(specials)]int
}

// kindBits has room for the index of each of specials.
const kindBits = 3

// reset begins at the start of a text.
func (f *finder) reset() {
	for kind := range f.ahead {
		f.ahead[kind] = kind - 1<<kindBits
	}
}

// next returns the place of the first special byte of b from i on, len(b) if
// there is none. i never gets smaller.
func (f *finder) next(b []byte, i int) int {
	for {
		first := min(f.ahead[0], f.ahead[1], f.ahead[2], f.ahead[3], f.ahead[4], f.ahead[5])
		if at := first >> kindBits; at >= i {
			return at
		}
		kind := first & (1<<kindBits - 1)
		at := len(b)
		if n := bytes.IndexByte(b[i:], specials[kind]); n >= 0 {
			at = i + n
		}
		f.ahead[kind] = at<<kindBits | kind
	}
}

// lens says which escapes a view undoes: those that begin with it. Line breaks and
// NUL are overlooked by all but lensQuoted.
type lens byte

const (
	lensAll lens = 0
	// lensQuoted is of quoted-printable text. It is one of its own: in other text
	// what stands behind = are values.
	lensQuoted lens = '='
	// lensBreaks undoes nothing.
	lensBreaks lens = '\n'
)

// allLenses has first those that are used on every text. The others are for
// needles that hold escapes themselves, or a beginning of one at their end: a
// server that escapes by one rule leaves those of another as they are, and undoing
// all of them can make a third text of it (%5C\n, in JSON %5C\\n, becomes \\n), or
// take in what follows the needle. For every needle they are used where an escape
// may take in its beginning, and one of another kind follows (attack: %PLACEHOLDER
// repeated in JSON, where / is \/).
var allLenses = [...]lens{lensAll, lensQuoted, lensBreaks, '%', '\\', '&'}

// own reports whether the lens undoes a part of what lensAll does.
func (l lens) own() bool { return l != lensAll && l != lensQuoted }

// turn takes note of a unit of another kind than the last one.
func (v *view) turn(raw []byte, i int) {
	v.mixed = v.mixed || v.kind != always && v.heads != nil && v.takesIn(raw, i)
	v.kind = wants[raw[i]]
}

// takenIn is how many characters of a needle must be there for own views of the
// text. How long a search takes tells of them: of the shortest value, they are
// less than two fifths.
const takenIn = 3

// takesIn reports whether a needle may begin within the last unit and go on to a
// place.
func (v *view) takesIn(raw []byte, to int) bool {
	begin, end := v.last.raw+1, v.last.raw+v.last.width
	if to-end > v.heads.maxLen || v.last.width == 2 && escaped[raw[begin]] == raw[begin] {
		return false
	}
	if wants[raw[to]] == always { // fewer characters than takenIn are there by chance
		end = min(end, to-takenIn+1)
	}
	for at := begin; at < end; at++ {
		if start := raw[at:min(to, at+takenIn)]; v.heads.mayBegin(start) && v.heads.isPrefix(start) {
			return true
		}
	}
	return false
}

// leaves reports whether c, which is special, means itself here.
func (l lens) leaves(c byte) bool {
	return l.own() && c != byte(l) && (c == '%' || c == '\\' || c == '&')
}

// build undoes the escapes of raw that the lens is for, and reports whether there
// are any. Behind limit, raw may go on differently when more data comes.
func (v *view) build(l lens, raw []byte, limit int) bool {
	v.lens = l
	return v.undo(raw, limit)
}

// next returns the place from i on of the first byte of raw that may stand for
// another one.
func (v *view) next(raw []byte, i int) int {
	switch {
	case v.lens == lensQuoted:
		if n := bytes.IndexByte(raw[i:], '='); n >= 0 {
			return i + n
		}
		return len(raw)
	case v.parent == nil || v.parent.margin > 0:
		return v.finder.next(raw, i)
	}
	for ; len(v.ahead) > 0; v.ahead = v.ahead[1:] {
		if at := v.ahead[0]; at >= i {
			return min(at, len(raw))
		}
	}
	return len(raw)
}

// decode reads the unit at the start of b.
func (v *view) decode(b []byte) unit {
	switch {
	case v.lens == lensQuoted:
		return quotedUnit(b)
	case v.lens.leaves(b[0]):
		return unit{}
	case v.lens.leaves('\\') && (b[0] == '\r' || b[0] == '\n'):
		return lineBreak(b, 1, false)
	}
	return decodeUnit(b)
}

// undo copies raw with its units replaced, once there is one to replace.
func (v *view) undo(raw []byte, limit int) bool {
	v.text, v.segments, v.regions, v.breaks, v.cut, v.cutText, v.toEnd, v.special = v.text[:0], v.segments[:0], v.regions[:0], v.breaks[:0], -1, -1, true, false
	v.mixed, v.kind = false, always
	v.finder.reset()
	if v.marks = v.marks[:0]; v.parent != nil {
		v.ahead = v.parent.marks
	}
	from, changed := 0, false // unchanged bytes begin at from
	for i := v.next(raw, 0); i < len(raw); {
		if i+1 < limit && !v.lens.leaves(raw[i]) {
			third := byte(' ') // an indent may follow
			if i+2 < limit {
				third = raw[i+2]
			}
			if kind, width, to := glance(raw[i], raw[i+1], third); width > 0 {
				if kind == unitLiteral {
					if special[raw[i+1]] { // else it begins nothing in the text either
						v.mark(len(v.text) + i - from)
					}
				} else {
					v.between(raw, from, i, changed)
					from, changed = i+width, true
					if wants[raw[i]] != v.kind {
						v.turn(raw, i)
					}
					v.last.raw, v.last.width = i, width
				}
				if kind == unitText {
					if to == '\\' {
						v.mark(len(v.text))
					}
					v.segments = append(v.segments, segment{len(v.text), i, width})
					v.text = append(v.text, to)
				} else if kind == unitSkip && width == 2 {
					v.breaks = append(v.breaks, i)
				}
				i = v.next(raw, i+width)
				continue
			}
		}
		u := v.decode(raw[i:])
		if v.cut < 0 && i < limit && (limit == len(raw) && u.open || limit < len(raw) && limit < i+max(u.width, maxUnit) && v.decode(raw[i:limit]).open) {
			v.cut, v.cutText = i, len(v.text)+i-from
		}
		if u.kind == unitLiteral {
			v.mark(len(v.text) + i - from)
			i = v.next(raw, i+1)
			continue
		}
		v.between(raw, from, i, changed)
		if wants[raw[i]] != v.kind {
			v.turn(raw, i)
		}
		v.last.raw, v.last.width = i, u.width
		if u.kind == unitText {
			if special[u.text[0]] {
				v.mark(len(v.text))
			}
			v.segments = append(v.segments, segment{len(v.text), i, u.width})
			v.text = append(v.text, u.text[:u.size]...)
		}
		if u.kind == unitSkip && raw[i] == '\\' {
			v.breaks = append(v.breaks, i)
		}
		i += u.width
		from, changed = i, true
		i = v.next(raw, i)
	}
	if !changed {
		return false
	}
	if v.margin > 0 && len(raw)-from > v.margin {
		v.literal(raw, from, from+v.margin)
		v.omit(from + v.margin)
		v.toEnd = false
	} else {
		v.literal(raw, from, len(raw))
	}
	v.cutText = min(v.cutText, len(v.text))
	return true
}

// mark notes that the text holds a special byte at at.
func (v *view) mark(at int) {
	v.special = true
	if v.margin == 0 {
		v.marks = append(v.marks, at)
	}
}

// always is the class of bytes that are overlooked whatever stands behind them.
const always = 16

// behind and wants sort out at a glance most special bytes that begin nothing:
// a byte wants one of those behind it.
var (
	wants   = [256]uint8{'%': 1, '&': 2, '\\': 4, '=': 8, '\r': always, '\n': always, 0: always}
	indents = [256]bool{' ': true, '\t': true, '\r': true, '\n': true, 0: true, '\\': true}
	behind  = func() (of [256]uint8) {
		for c := range 256 {
			of[c] = always
			if _, ok := hexDigit(byte(c)); ok {
				of[c] |= 1 | 8
			}
			if c|0x20 >= 'a' && c|0x20 <= 'z' {
				of[c] |= 2
			}
			if escaped[c] != 0 || c >= '0' && c <= '7' {
				of[c] |= 4
			}
		}
		for _, c := range "uUxnr%&" {
			of[c] |= 4
		}
		of['u'] |= 1
		of['#'] |= 2
		for _, c := range "\r\n\\" {
			of[c] |= 8
		}
		return of
	}()
)

// glance reads what most special bytes begin, with the bytes behind them: nothing,
// \" and the like, or a single line break, also as \n. Its width is 0 if it takes
// a closer look.
func glance(c, next, third byte) (kind unitKind, width int, to byte) {
	switch want := wants[c]; {
	case want&behind[next] == 0:
		return unitLiteral, 1, 0
	case c == '\\' && escaped[next] != 0:
		return unitText, 2, escaped[next]
	case want == always && !indents[next]:
		return unitSkip, 1, 0
	case c == '\\' && (next == 'n' || next == 'r') && !indents[third]:
		return unitSkip, 2, 0
	}
	return unitLiteral, 0, 0
}

// between copies unchanged bytes before a unit, and behind another one if
// there is one; of a long run, what is near them.
func (v *view) between(raw []byte, from, to int, behind bool) {
	if v.margin == 0 || to-from <= 2*v.margin {
		v.literal(raw, from, to)
	} else {
		v.around(raw, from, to, behind)
	}
}

func (v *view) around(raw []byte, from, to int, behind bool) {
	if behind {
		v.literal(raw, from, from+v.margin)
		from += v.margin
	}
	v.omit(from)
	v.regions = append(v.regions, len(v.text))
	v.literal(raw, to-v.margin, to)
}

// omit notes that the source from at on isn't in the view: a segment without
// text.
func (v *view) omit(at int) { v.segments = append(v.segments, segment{len(v.text), at, 1}) }

func (v *view) literal(raw []byte, from, to int) {
	if from == to {
		return
	}
	// A run that goes on where the last one ended needs no segment of its own.
	if n := len(v.segments); n == 0 || v.segments[n-1].width != 1 || v.segments[n-1].raw-v.segments[n-1].text != from-len(v.text) {
		v.segments = append(v.segments, segment{len(v.text), from, 1})
	}
	v.text = append(v.text, raw[from:to]...)
}

// span returns the place in the data of the view's bytes from..to.
func (v *view) span(from, to int) (start, end int) {
	for ; v != nil; v = v.parent {
		last, width := v.raw(to - 1)
		from, _ = v.raw(from)
		to = last + width
	}
	return from, to
}

// raw returns where the unit behind the view's byte at t begins, and its width.
func (v *view) raw(t int) (at, width int) {
	i := sort.Search(len(v.segments), func(i int) bool { return v.segments[i].text > t }) - 1
	s := v.segments[i]
	if s.width == 1 {
		return s.raw + t - s.text, 1
	}
	return s.raw, s.width
}

// boundary returns the last place of the source up to at where a unit begins, or
// the overlooked bytes before one, and the place of text that it is made to.
func (v *view) boundary(at int) (raw, text int) {
	i := sort.Search(len(v.segments), func(i int) bool { return v.segments[i].raw > at }) - 1
	if i < 0 {
		return 0, 0
	}
	s, next := v.segments[i], len(v.text)
	if i+1 < len(v.segments) {
		next = v.segments[i+1].text
	}
	if s.width == 1 && next == s.text {
		return at, s.text // omitted
	}
	over := s.raw + s.width
	if s.width == 1 {
		over = s.raw + next - s.text
	}
	switch {
	case at >= over:
		return over, next
	case s.width == 1:
		return at, s.text + at - s.raw
	}
	return s.raw, s.text
}

// align returns the last place of the data up to at from which the view can be
// made of what follows alone.
func (v *view) align(at int) int {
	raw, _ := v.aligned(at)
	return raw
}

// aligned returns the place of the data, and that of the view's text.
func (v *view) aligned(at int) (raw, text int) {
	if v.parent == nil {
		return v.boundary(at)
	}
	raw, in := v.parent.aligned(at)
	begin, text := v.boundary(in)
	if begin < in {
		raw = min(raw, v.parent.dataAt(begin))
	}
	return raw, text
}

// dataAt returns the place of the data from which the view's text from t on is
// made; the overlooked bytes in front included.
func (v *view) dataAt(t int) int {
	at := v.sourceAt(t)
	if v.parent != nil {
		return v.parent.dataAt(at)
	}
	return at
}

func (v *view) sourceAt(t int) int {
	i := sort.Search(len(v.segments), func(i int) bool { return v.segments[i].text > t }) - 1
	s := v.segments[i]
	switch {
	case s.text == t && i == 0:
		return 0
	case s.text == t:
		if last := v.segments[i-1]; last.text == t {
			return s.raw // behind what is omitted
		} else if last.width != 1 {
			return last.raw + last.width
		}
		return v.segments[i-1].raw + t - v.segments[i-1].text
	case s.width != 1:
		return s.raw
	}
	return s.raw + t - s.text
}
