package mask

import (
	"encoding/binary"
	"math/bits"
	"sort"
)

// view is the data with single-character spellings undone, and the way back to
// the places in the data.
type view struct {
	text     []byte
	segments []segment
	// cut is where an escape begins that the data doesn't hold to its end, in the
	// data and in text: with more data, text goes on differently from there.
	cut, cutText int
}

// segment maps a run of the view to the data: one unit of width bytes, or
// bytes that stand for themselves (width 1).
type segment struct{ text, raw, width int }

// maxSkipped is how many line breaks in a row are overlooked inside a needle:
// base64 is wrapped by one or two characters. A bound, because overlooked bytes
// are held back.
const maxSkipped = 4

// special marks bytes that may begin a spelling of another byte, or are
// overlooked.
//
//nolint:gochecknoglobals // an immutable table
var special = [256]bool{'%': true, '\\': true, '&': true, '\r': true, '\n': true, 0: true}

// build makes the view of raw and reports whether it differs from raw.
func (v *view) build(raw []byte) bool {
	v.text, v.segments, v.cut = v.text[:0], v.segments[:0], -1
	i := plainRun(raw)
	if i == len(raw) {
		return false
	}
	v.literal(raw, 0, i)
	skipped := 0
	for i < len(raw) {
		if !special[raw[i]] {
			start := i
			i += plainRun(raw[i:])
			v.literal(raw, start, i)
			skipped = 0
			continue
		}
		u := decodeUnit(raw[i:])
		if u.kind == unitCut && v.cut < 0 {
			v.cut, v.cutText = i, len(v.text)
		}
		switch {
		case u.kind == unitSkip && skipped < maxSkipped:
			skipped++
			i += u.width
			continue
		case u.kind == unitByte:
			v.segments = append(v.segments, segment{len(v.text), i, u.width})
			v.text = append(v.text, u.value)
			i += u.width
		default:
			v.literal(raw, i, i+1)
			i++
		}
		skipped = 0
	}
	return true
}

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
func (v *view) span(from, to int) (int, int) {
	start, _ := v.raw(from)
	last, width := v.raw(to - 1)
	return start, last + width
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

// boundary returns the last place up to at where a unit of the data begins, or
// the overlooked bytes before one.
func (v *view) boundary(at int) int {
	i := sort.Search(len(v.segments), func(i int) bool { return v.segments[i].raw > at }) - 1
	if i < 0 {
		return 0
	}
	s, end := v.segments[i], len(v.text)
	if i+1 < len(v.segments) {
		end = v.segments[i+1].text
	}
	switch over := s.raw + (end-s.text)*s.width; {
	case at >= over:
		return over
	case s.width == 1:
		return at
	}
	return s.raw
}
