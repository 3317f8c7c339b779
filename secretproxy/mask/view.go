package mask

import (
	"bytes"
	"encoding/binary"
	"math/bits"
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
	wasQuoted    bool  // made by quoted
	// margin is how much is copied around a unit, 0 for everything: what is
	// farther away was searched in the source. Each of regions is where the copy
	// goes on somewhere else; toEnd says that it goes to the source's end.
	margin  int
	regions []int
	toEnd   bool
	breaks  []int // where the source has a line break as a string does, \n
	special bool  // the text holds special bytes: there may be more to undo
}

// segment maps a run of the view to its source: one unit of width bytes, or
// bytes that stand for themselves (width 1).
type segment struct{ text, raw, width int }

// special marks bytes that may begin a spelling of another byte, or are
// overlooked.
//
//nolint:gochecknoglobals // an immutable table
var special = [256]bool{'%': true, '\\': true, '&': true, '\r': true, '\n': true, 0: true}

// build undoes the escapes of raw and reports whether there are any. Behind
// limit, raw may go on differently when more data comes.
func (v *view) build(raw []byte, limit int) bool {
	v.wasQuoted = false
	return v.undo(raw, limit)
}

// quoted makes a view of quoted-printable text. It is one of its own: in other
// text what stands behind = are values.
func (v *view) quoted(raw []byte, limit int) bool {
	v.wasQuoted = true
	return v.undo(raw, limit)
}

// plain returns how many bytes at the start of b stand for themselves.
func (v *view) plain(b []byte) int {
	if !v.wasQuoted {
		return plainRun(b)
	}
	if i := bytes.IndexByte(b, '='); i >= 0 {
		return i
	}
	return len(b)
}

// decode reads the unit at the start of b.
func (v *view) decode(b []byte) unit {
	if v.wasQuoted {
		return quotedUnit(b)
	}
	return decodeUnit(b)
}

// undo copies raw with its units replaced, once there is one to replace.
func (v *view) undo(raw []byte, limit int) bool {
	v.text, v.segments, v.regions, v.breaks, v.cut, v.cutText, v.toEnd, v.special = v.text[:0], v.segments[:0], v.regions[:0], v.breaks[:0], -1, -1, true, false
	from, changed := 0, false // what stands for itself begins at from
	for i := v.plain(raw); i < len(raw); {
		if i+1 < limit {
			if kind, width, to := glance(raw[i], raw[i+1]); width > 0 {
				if kind == unitLiteral {
					v.special = true
				} else {
					v.between(raw, from, i, changed)
					from, changed = i+width, true
				}
				if kind == unitText {
					v.segments = append(v.segments, segment{len(v.text), i, width})
					v.text = append(v.text, to)
					v.special = v.special || to == '\\'
				}
				i += width
				i += v.plain(raw[i:])
				continue
			}
		}
		u := v.decode(raw[i:])
		if v.cut < 0 && i < limit && (limit == len(raw) && u.open || limit < len(raw) && limit < i+max(u.width, maxUnit) && v.decode(raw[i:limit]).open) {
			v.cut, v.cutText = i, len(v.text)+i-from
		}
		if u.kind == unitLiteral {
			v.special = true
			i++
			i += v.plain(raw[i:])
			continue
		}
		v.between(raw, from, i, changed)
		if u.kind == unitText {
			v.segments = append(v.segments, segment{len(v.text), i, u.width})
			v.text = append(v.text, u.text[:u.size]...)
			v.special = v.special || special[u.text[0]]
		}
		if u.kind == unitSkip && raw[i] == '\\' {
			v.breaks = append(v.breaks, i)
		}
		i += u.width
		from, changed = i, true
		i += v.plain(raw[i:])
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

// always is the class of bytes that are overlooked whatever stands behind them.
const always = 16

// behind and wants sort out at a glance most special bytes that begin nothing:
// a byte wants one of those behind it.
//
//nolint:gochecknoglobals // immutable tables
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
		of['\r'] |= 8
		of['\n'] |= 8
		return of
	}()
)

// glance reads what most special bytes begin, with the byte behind them: nothing,
// \" and the like, or a single line break. Its width is 0 if it takes a closer
// look.
func glance(c, next byte) (kind unitKind, width int, to byte) {
	switch want := wants[c]; {
	case want&behind[next] == 0:
		return unitLiteral, 1, 0
	case c == '\\' && escaped[next] != 0:
		return unitText, 2, escaped[next]
	case want == always && !indents[next]:
		return unitSkip, 1, 0
	}
	return unitLiteral, 0, 0
}

// between copies what stands for itself before a unit, and behind another one if
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

// plainRun returns how many bytes at the start of b aren't special. It looks at
// sixteen bytes at once, closer only where one may be, and is what a long body
// spends most of its time in.
func plainRun(b []byte) int {
	i := 0
	for ; len(b)-i >= 16; i += 16 {
		low, high := binary.LittleEndian.Uint64(b[i:]), binary.LittleEndian.Uint64(b[i+8:])
		if suspicious(low)|suspicious(high) == 0 {
			continue
		}
		if hit := exact(low); hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
		if hit := exact(high); hit != 0 {
			return i + 8 + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b) && !special[b[i]]; i++ {
	}
	return i
}

// In each of the terms below a byte that is looked for is zero, and taking one
// off sets its high bit. Borrows can set bits above the first one that is right,
// never below or instead of it: the lowest is exact.
const ones, highs = 0x0101010101010101, 0x8080808080808080

// suspicious is not zero if one of eight bytes is special; it may be for others.
func suspicious(w uint64) uint64 {
	control := w & (0xf0 * ones)           // 0, \n, \r and their neighbours
	sign := (w ^ '$'*ones) & (0xfc * ones) // $ % & '
	slash := w ^ '\\'*ones
	return ((control-ones)&^control | (sign-ones)&^sign | (slash-ones)&^slash) & highs
}

// exact has the high bit of the first of eight bytes that is special as its
// lowest bit.
func exact(w uint64) uint64 {
	cr, lf, slash, percent, and := w^'\r'*ones, w^'\n'*ones, w^'\\'*ones, w^'%'*ones, w^'&'*ones
	hit := (w-ones)&^w | (cr-ones)&^cr | (lf-ones)&^lf | (slash-ones)&^slash | (percent-ones)&^percent | (and-ones)&^and
	return hit & highs
}

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
	case s.text == t && t < len(v.text) && i == 0:
		return 0
	case s.text == t && t < len(v.text):
		if last := v.segments[i-1]; last.text == t {
			return s.raw // behind what is omitted
		} else if last.width != 1 {
			return last.raw + last.width
		}
		return v.segments[i-1].raw + t - v.segments[i-1].text
	case s.width != 1 && t < len(v.text):
		return s.raw
	case s.width != 1:
		return s.raw + s.width
	}
	return s.raw + t - s.text
}
