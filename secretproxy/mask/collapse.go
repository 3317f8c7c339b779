package mask

import (
	"bytes"
	"slices"
)

// Runs of blanks (the indent of folded text) and of zeros (&#0000103;) can make a
// spelling as long as a server likes. In what a stream keeps, such a run takes up
// maxFill bytes, and the number of the others is noted.

// maxFill is longer than any run that a program writes in an escape.
const maxFill = 24

// fill is bytes that are left out of a buffer: extra times c, before at.
type fill struct {
	at, extra int
	c         byte
}

func fillable(c byte) bool { return c == ' ' || c == '\t' || c == '0' }

// hasFill reports whether there may be a run that is too long. It looks at every
// byte that such a run can't avoid.
func hasFill(b []byte) bool {
	for i := maxFill; i < len(b); i += maxFill {
		if c := b[i]; fillable(c) && b[i-1] == c && bytes.Count(b[i-min(i, maxFill):min(len(b), i+maxFill)], []byte{c}) > maxFill {
			return true
		}
	}
	return false
}

// runEnd returns where the run that begins at i ends.
func runEnd(b []byte, i int) int {
	end := i + 1
	if fillable(b[i]) {
		for end < len(b) && b[end] == b[i] {
			end++
		}
	}
	return end
}

// collapsed returns b with its long runs shortened.
func collapsed(b []byte) []byte {
	if !hasFill(b) {
		return b
	}
	var out []byte
	for i := 0; i < len(b); {
		end := runEnd(b, i)
		out = append(out, b[i:min(end, i+maxFill)]...)
		i = end
	}
	return out
}

// back returns from where b, collapsed, is at most size bytes long.
func back(b []byte, size int) int {
	at := max(0, len(b)-size)
	if !hasFill(b[at:]) {
		return at
	}
	for at = len(b); at > 0; {
		start := at - 1
		if c := b[start]; fillable(c) {
			for start > 0 && b[start-1] == c {
				start--
			}
		}
		if size -= min(at-start, maxFill); size < 0 {
			break
		}
		at = start
	}
	return at
}

// absorb takes bytes off the piece that begins at from which only make the run
// before it longer, if that is a collapsed one.
func (st *Stream) absorb(from int) {
	last := len(st.fills) - 1
	if last < 0 || st.fills[last].at != from {
		return
	}
	end := from
	for end < len(st.buf) && st.buf[end] == st.fills[last].c {
		end++
	}
	st.fills[last].extra += end - from
	st.buf = slices.Delete(st.buf, from, end)
	if st.run.start > from {
		st.run.start = max(from, st.run.start-(end-from))
	}
}

// collapse shortens the long runs of the buffer.
func (st *Stream) collapse() {
	if !hasFill(st.buf) {
		return
	}
	out, fills, done, start := st.buf[:0], st.fills, st.done, st.run.start
	st.fills = nil
	for i := 0; i < len(st.buf); {
		end := runEnd(st.buf, i)
		kept := min(end-i, maxFill)
		at := len(out)
		out = append(out, st.buf[i:i+kept]...)
		place(&st.done, done, i, end, at, kept)
		place(&st.run.start, start, i, end, at, kept)
		for len(fills) > 0 && fills[0].at <= end {
			st.fills = append(st.fills, fill{len(out), fills[0].extra, fills[0].c})
			fills = fills[1:]
		}
		if left := end - i - kept; left > 0 {
			// What was given out of the run already is not given out again.
			st.fills = append(st.fills, fill{len(out), max(0, end-max(done, i+kept)), st.buf[i]})
		}
		i = end
	}
	st.buf = out
}

// place sets where the place was is now, if it lay in a run from i to end of
// which kept bytes are now at at.
func place(now *int, was, i, end, at, kept int) {
	if was > i && was <= end || was == i {
		*now = at + min(was-i, kept)
	}
}
