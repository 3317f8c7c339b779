package mask

import (
	"bytes"
	"slices"
	"sync"
)

// Replacer says what stands in the place of a hit. An error ends the stream.
type Replacer func(Hit) ([]byte, error)

// ReplaceBy returns a Replacer that puts replacements[needle] in the spelling
// that was found.
func ReplaceBy(replacements [][]byte) Replacer {
	return func(h Hit) ([]byte, error) { return h.encode(replacements[h.Needle]), nil }
}

// looseDepth is how many characters of a needle must be there before a live
// stream of NewStream holds them back. Fewer would stall conversations in which
// a message happens to end like a needle begins.
const looseDepth = 4

// Stream replaces needles in data that comes in pieces.
type Stream struct {
	set     *Set
	replace Replacer
	latest  func() (*Set, Replacer)
	live    bool
	// answer holds back by public state alone (see run.go).
	answer bool
	run    tokenRun
	// slides says that a part of a run was given out before its end.
	slides bool
	// inner searches what this stream gives out for the needles of the next stage.
	inner   *Stream
	isInner bool

	*workspace
	done  int
	fills []fill // what is left out of the buffer
	hits  int
}

// workspace is the memory of a stream, reused once it ended.
type workspace struct {
	buf  []byte // buf[:done] was given out and is kept as context
	mid  []byte // what goes to the next stage
	scan scan
}

// workspaces is working memory, reused across bodies.
var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// NewStream starts a stream for whoever knows the needles: it holds back what
// may be the beginning of one; on a live stream, from its fourth character on.
func NewStream(s *Set, r Replacer, live bool) *Stream {
	w, _ := workspaces.Get().(*workspace)
	return &Stream{set: s, replace: r, live: live, workspace: w}
}

// NewAnswerStream starts a stream for what goes to whoever must not learn of the
// needles. A live one holds back the last run of token characters, until it
// ends; another one its last Window bytes.
func NewAnswerStream(s *Set, r Replacer, live bool) *Stream {
	st := NewStream(s, r, live)
	st.answer = true
	return st
}

// Framed says how a live answer is divided into messages. It is called before
// the first piece.
func (st *Stream) Framed(f Framing) *Stream {
	st.run.frame.kind = f
	return st
}

// Follow makes the stream ask for its set and its replacements with each piece,
// so that a value that is new while an answer is under way is masked in the rest
// of it.
func (st *Stream) Follow(latest func() (*Set, Replacer)) *Stream {
	st.latest = latest
	return st
}

// Hits is the number of needles replaced so far.
func (st *Stream) Hits() (n int) {
	st.each(func(st *Stream) { n += st.hits })
	return n
}

// Bound is the largest number of bytes that the stream keeps between two pieces,
// for its set of now. It depends on lengths only, so that what is charged for a
// stream tells nothing of a value.
func (st *Stream) Bound() int {
	set := st.set
	if st.latest != nil {
		set, _ = st.latest()
	}
	n := 0
	for ; set != nil; set = set.next() {
		n += set.context() + 2*maxStretch
	}
	return n
}

// Push takes the next piece and appends to dst what can be given out.
func (st *Stream) Push(dst, piece []byte, final bool) ([]byte, error) {
	return st.advance(dst, copy(st.room(len(piece)), piece), final)
}

// room returns n bytes behind the buffered ones, to read the next piece into.
func (st *Stream) room(n int) []byte {
	st.buf = slices.Grow(st.buf, n)
	return st.buf[len(st.buf) : len(st.buf)+n]
}

// pending is how many bytes were taken and not given out yet.
func (st *Stream) pending() (n int) {
	st.each(func(st *Stream) { n += len(st.buf) - st.done })
	return n
}

// release gives the memory back. Nothing may be pushed afterwards.
func (st *Stream) release() {
	st.each(func(st *Stream) {
		w := st.workspace
		if w == nil {
			return
		}
		clear(w.buf[:cap(w.buf)])
		clear(w.mid[:cap(w.mid)])
		w.scan.wipe()
		w.buf, w.mid = w.buf[:0], w.mid[:0]
		st.workspace, st.done = nil, 0
		workspaces.Put(w)
	})
}

// search takes the first n bytes of room, and appends to dst what can be given
// out.
func (st *Stream) search(dst []byte, n int, final bool) ([]byte, error) {
	from := len(st.buf)
	st.buf = st.buf[:from+n]
	if st.answer && st.live && !st.isInner {
		st.run.feed(st.buf, from)
	}
	st.absorb(from)
	if !st.answer {
		st.set.run(&st.scan, st.buf)
		return st.giveOut(dst, st.partialHold(final), final)
	}
	hold := len(st.buf)
	if !final {
		if hold = st.publicHold(); hold <= st.done {
			if hold == st.done {
				dst = st.pass(dst, hold)
			}
			if len(st.buf) > st.set.context() {
				st.collapse()
			}
			return dst, nil // nothing new to give out, so nothing to look for
		}
	}
	st.set.run(&st.scan, st.buf)
	return st.giveOut(dst, hold, final)
}

// unfollow lets go of the set until the next piece: an idle answer would keep one
// that has been replaced (attack: a mint, an idle answer, a mint, ...).
func (st *Stream) unfollow() {
	st.set, st.replace = nil, nil
	if st.workspace != nil {
		clear(st.scan.hits[:cap(st.scan.hits)])
		clear(st.scan.found[:cap(st.scan.found)])
	}
}

// publicHold returns up to where an answer may be given out, by public state
// alone.
func (st *Stream) publicHold() int {
	end, start := len(st.buf), st.done
	switch {
	case !st.live:
	case st.isInner: // the first stage has held back what isn't whole
		if !st.slides {
			return end
		}
	default:
		least := minRun
		if st.set.shortest < shortNeedle {
			least = 1
		}
		var held bool
		if start, held = st.run.held(least); !held {
			st.slides = false
			return end
		}
	}
	// What is longer than any spelling slides through, in steps of a window:
	// every step looks at all that is kept.
	hold := max(st.done, start)
	if hold < back(st.buf, st.set.window+st.set.step()) {
		hold = back(st.buf, st.set.window)
	}
	if !st.isInner {
		st.slides = hold > start
	}
	return hold
}

// partialHold returns up to where a request may be given out: to where a needle
// may begin.
func (st *Stream) partialHold(final bool) int {
	hold := len(st.buf)
	if final {
		return hold
	}
	loose := 0
	if st.live {
		loose = looseDepth
	}
	hits := st.scan.hits
	for _, p := range st.scan.partial {
		for len(hits) > 0 && hits[0].end <= p.raw {
			hits = hits[1:]
		}
		if len(hits) > 0 && hits[0].start < p.raw {
			continue // within a needle that is whole, or held back below
		}
		if p.depth >= loose {
			hold = min(hold, p.raw)
		}
	}
	for i := range st.scan.hits {
		if h := &st.scan.hits[i]; h.open {
			hold = min(hold, h.start)
		}
	}
	return max(st.done, hold, back(st.buf, st.set.window))
}

// giveOut appends the buffer up to hold to dst, its needles replaced, and keeps
// what lies behind and what may be the beginning of a needle. That a beginning
// is kept changes nothing of what is given out before the needle is whole.
func (st *Stream) giveOut(dst []byte, hold int, final bool) ([]byte, error) {
	for i := range st.scan.hits {
		h := &st.scan.hits[i]
		if h.start >= hold || h.end <= st.done || h.open && hold <= st.done {
			continue
		}
		if h.start > st.done {
			dst = st.pass(dst, h.start)
		}
		text, err := st.replace(*h)
		if err != nil {
			return dst, err
		}
		st.hits++
		if h.before != 0 && h.start < st.done && len(text) > 0 {
			text = text[1:] // the shared character was given out before
		}
		dst = append(dst, text...)
		st.done = h.end
		for i, f := range st.fills {
			if f.at > h.start && f.at <= h.end {
				st.fills[i].extra = 0
			}
		}
	}
	if hold >= st.done {
		dst = st.pass(dst, hold)
	}
	if final {
		return dst, nil
	}
	keep := st.done
	for _, p := range st.scan.partial {
		keep = min(keep, p.raw)
	}
	for i := range st.scan.hits {
		if h := &st.scan.hits[i]; h.open {
			keep = min(keep, h.start)
		}
	}
	st.forget(st.scan.align(max(keep, back(st.buf, st.set.context()))))
	st.collapse()
	return dst, nil
}

// pass appends the buffer up to to, with what is left out of it.
func (st *Stream) pass(dst []byte, to int) []byte {
	for i, f := range st.fills {
		if f.extra > 0 && f.at >= st.done && f.at <= to {
			dst = append(dst, st.buf[st.done:f.at]...)
			dst = append(dst, bytes.Repeat([]byte{f.c}, f.extra)...)
			st.done, st.fills[i].extra = f.at, 0
		}
	}
	dst = append(dst, st.buf[st.done:to]...)
	st.done = to
	return dst
}

// forget drops the first n bytes of the buffer.
func (st *Stream) forget(n int) {
	rest := copy(st.buf, st.buf[n:])
	st.buf, st.done = st.buf[:rest], st.done-n
	st.run.start -= n
	kept := st.fills[:0]
	for _, f := range st.fills {
		if f.at -= n; f.at >= 0 {
			kept = append(kept, f)
		}
	}
	st.fills = kept
}
