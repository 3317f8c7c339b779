package mask

import (
	"slices"
	"sync"
)

// Replacer says what stands in the place of a hit. An error ends the stream.
type Replacer func(Hit) ([]byte, error)

// ReplaceBy returns a Replacer that puts replacements[needle] in the spelling
// that was found.
func ReplaceBy(replacements [][]byte) Replacer {
	return func(h Hit) ([]byte, error) { return h.Encode(replacements[h.Needle]), nil }
}

// looseDepth is how many characters of a needle must be there before a live
// stream holds them back. Fewer would stall conversations in which a message
// happens to end like a needle begins.
const looseDepth = 4

// Stream replaces needles in data that comes in pieces.
type Stream struct {
	set     *Set
	replace Replacer
	// loose lets fewer than looseDepth leading characters of a needle pass when
	// a piece ends there.
	loose bool
	// byShape holds back what looks like a token, whatever the needles are.
	byShape bool

	*workspace
	done int
	hits int
}

// workspace is the memory of a stream, reused once it ended.
type workspace struct {
	buf  []byte // buf[:done] was given out and is kept as context
	scan scan
}

//nolint:gochecknoglobals // working memory, reused across bodies
var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// NewStream starts a stream. A live stream holds next to nothing back; see the
// package comment for what that costs.
func NewStream(s *Set, r Replacer, live bool) *Stream {
	w, _ := workspaces.Get().(*workspace)
	return &Stream{set: s, replace: r, loose: live, workspace: w}
}

// NewAnswerStream starts a stream for what goes to whoever must not learn of the
// needles: what it holds back depends on the shape of the data alone.
func NewAnswerStream(s *Set, r Replacer, live bool) *Stream {
	st := NewStream(s, r, live)
	st.byShape = true
	return st
}

// Hits is the number of needles replaced so far.
func (st *Stream) Hits() int { return st.hits }

// Push takes the next piece and appends to dst what can be given out.
func (st *Stream) Push(dst, piece []byte, final bool) ([]byte, error) {
	return st.advance(dst, copy(st.room(len(piece)), piece), final)
}

// room returns n bytes behind what is held, to read the next piece into.
func (st *Stream) room(n int) []byte {
	st.buf = slices.Grow(st.buf, n)
	return st.buf[len(st.buf) : len(st.buf)+n]
}

// held is how many bytes were taken and not given out yet.
func (st *Stream) held() int { return len(st.buf) - st.done }

// release gives the memory back. Nothing may be pushed afterwards.
func (st *Stream) release() {
	if w := st.workspace; w != nil {
		clear(w.buf[:cap(w.buf)])
		clear(w.scan.view.text[:cap(w.scan.view.text)])
		clear(w.scan.lower[:cap(w.scan.lower)])
		w.buf = w.buf[:0]
		st.workspace, st.done = nil, 0
		workspaces.Put(w)
	}
}

// advance takes the first n bytes of room as the next piece.
func (st *Stream) advance(dst []byte, n int, final bool) ([]byte, error) {
	st.buf = st.buf[:len(st.buf)+n]
	st.set.run(&st.scan, st.buf, final)
	hold, keep := st.limits()
	if st.byShape && !final {
		hold = max(st.done, st.set.tokenTail(st.buf, st.loose))
	}
	return st.giveOut(dst, hold, keep)
}

// letGo gives out what is held back. What may be the beginning of a needle is
// remembered, so that the rest of it is replaced when it comes.
func (st *Stream) letGo(dst []byte) ([]byte, error) {
	st.set.run(&st.scan, st.buf, false)
	_, keep := st.limits()
	st.set.run(&st.scan, st.buf, true)
	return st.giveOut(dst, len(st.buf), keep)
}

// giveOut appends the buffer up to hold to dst, its needles replaced, and keeps
// what lies behind keep.
func (st *Stream) giveOut(dst []byte, hold, keep int) ([]byte, error) {
	for i := range st.scan.hits {
		h := &st.scan.hits[i]
		if h.start >= hold || h.end <= st.done {
			continue
		}
		if h.start > st.done {
			dst = append(dst, st.buf[st.done:h.start]...)
		}
		text, err := st.replace(*h)
		if err != nil {
			return dst, err
		}
		st.hits++
		if h.start < st.done && h.before != 0 && len(text) > 0 {
			text = text[1:] // the shared character was given out before
		}
		dst = append(dst, text...)
		st.done = h.end
	}
	if hold > st.done {
		dst = append(dst, st.buf[st.done:hold]...)
		st.done = hold
	}
	// One character more than needed: base64 shares bits with it.
	keep = max(0, min(keep, st.done)-1)
	rest := copy(st.buf, st.buf[keep:])
	st.buf, st.done = st.buf[:rest], st.done-keep
	return dst, nil
}

// limits returns up to where the buffer may be given out, and from where it
// must be kept as the beginning of what may come.
func (st *Stream) limits() (hold, keep int) {
	hold, keep = len(st.buf), len(st.buf)
	hits := st.scan.hits
	for _, p := range st.scan.partial {
		for len(hits) > 0 && hits[0].end <= p.raw {
			hits = hits[1:]
		}
		if len(hits) > 0 && hits[0].start < p.raw && hits[0].start < hold {
			continue // within a needle that is whole
		}
		keep = min(keep, p.raw)
		if !st.loose || p.depth >= looseDepth {
			hold = min(hold, p.raw)
		}
	}
	return hold, keep
}
