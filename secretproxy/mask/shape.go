package mask

// What is held back at the end of a piece must not depend on the needles: a
// server that the guest agrees with could send "token_a", "token_b" and so on,
// and the guest see which one comes late. So the end of a piece is held back for
// what it looks like: a run of characters that tokens, and the escapes they are
// spelled with, are made of.

const (
	// maxTail bounds what is held back: the longest spelling of a value of 450
	// characters. Of a longer one, the beginning can pass at the end of a piece.
	maxTail = 4096
	// wrapped is the length from which a line is taken for one of wrapped base64,
	// that goes on after its line break.
	wrapped = 16
)

// tokenBytes are the bytes of tokens: visible ASCII but for brackets, quotes and
// commas, which end a message of JSON, XML or the like.
//
//nolint:gochecknoglobals // an immutable table
var tokenBytes = func() (class [256]bool) {
	for c := '!'; c <= '~'; c++ {
		class[c] = true
	}
	for c := 0x80; c <= 0xff; c++ {
		class[c] = true
	}
	for _, c := range `"'<>()[]{},` {
		class[c] = false
	}
	return class
}()

// shapeOf is tokenBytes with what else the needles are made of. That a needle
// holds a bracket, say, is all that can be learned from it.
func shapeOf(needles [][]byte) (class [256]bool) {
	class = tokenBytes
	for _, needle := range needles {
		for _, c := range needle {
			class[c] = true
		}
	}
	return class
}

// tokenTail returns from where the end of data looks like the beginning of a
// token; len(data) if it doesn't. Of a live answer, fewer than looseDepth
// characters are let pass.
func (s *Set) tokenTail(data []byte, live bool) int {
	stop := max(0, len(data)-maxTail)
	from := len(data)
	for at := from; at > stop; {
		line := at
		for line > stop && at-line < maxSkipped && (data[line-1] == '\n' || data[line-1] == '\r') && !s.shape[data[line-1]] {
			line--
		}
		run := line
		for run > stop && s.shape[data[run-1]] {
			run--
		}
		if run == line || line < at && line-run < wrapped {
			break
		}
		from, at = run, run
	}
	if live && len(data)-from < looseDepth {
		return len(data)
	}
	return from
}
