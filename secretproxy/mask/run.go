package mask

// What an answer's stream holds back must not depend on the needles: a server
// that works with the guest could send beginnings of a value, and the guest see
// which one comes late, by its own time or by that of what follows. So what is
// held depends on the classes of the bytes that went by, on where messages end,
// and on the lengths of the needles: all of it is public.

const (
	// minRun is how many token characters pass at once. Fewer than eight
	// characters of a value are no use to anybody; holding them would stall
	// conversations that are typed.
	minRun = 8
	// shortNeedle is the length below which minRun characters would be too large
	// a part of a value: then nothing of a token passes before its end.
	shortNeedle = 16
)

// byteClass says what a byte does to a run of token characters.
type byteClass uint8

const (
	classEnd   byteClass = iota // ends it: brackets, control characters
	classToken                  // is part of it
	classBlank                  // ends it, but as the indent of a folded line
	classBreak                  // a line break, behind which folded text goes on
	classNone                   // NUL: every other byte of UTF-16
)

// classes has all visible characters but brackets as parts of tokens, and the
// bytes beyond ASCII. Quotes and commas are among them: values hold them, and
// what follows them in JSON, a bracket, ends the run.
var classes = func() (class [256]byteClass) {
	for c := '!'; c <= 0xff; c++ {
		class[c] = classToken
	}
	for _, c := range "()<>[]{}\x7f" {
		class[c] = classEnd
	}
	class[' '], class['\t'], class['\r'], class['\n'], class[0] = classBlank, classBlank, classBreak, classBreak, classNone
	return class
}()

// tokenRun follows the last run of token characters of a live answer.
type tokenRun struct {
	frame frame
	start int // where it begins in the stream's buffer
	count int // its token characters; 0: there is none
	// fold is the last line break behind the run, 0 if there is none.
	fold  byte
	brace braceState
}

// held returns where the run begins, if it is to be held back.
func (r *tokenRun) held(least int) (start int, ok bool) { return r.start, r.count >= least }

// feed takes the bytes of b from an index on.
func (r *tokenRun) feed(b []byte, from int) {
	from, fresh := r.frame.feed(b, from)
	if fresh {
		r.count, r.fold, r.brace = 0, 0, braceNone
	}
	if at, ok := r.lastEnd(b, from); ok {
		r.count, r.fold, r.brace = 0, 0, braceNone
		from = at + 1
	}
	for i := from; i < len(b); i++ {
		r.step(b[i], i)
	}
}

func (r *tokenRun) step(c byte, at int) {
	class := classes[c]
	next, part := r.brace.next(c)
	if r.brace = next; part {
		class = classToken
	}
	switch class {
	case classToken:
		if r.count == 0 {
			r.start = at
		}
		r.count++
		r.fold = 0
	case classBlank:
		if r.fold == 0 {
			r.count = 0
		} else {
			r.fold = '\n'
		}
	case classBreak:
		again := r.fold != 0 && (r.fold != '\r' || c != '\n')
		if r.count < minRun || again || r.frame.kind == frameLines {
			r.count, r.fold = 0, 0
			return
		}
		r.fold = c
	case classEnd:
		r.count, r.fold = 0, 0
	case classNone:
	}
}

// lastEnd returns the last byte of b that ends a run whatever stands before it.
// It saves feed from looking at every byte of a long piece.
func (r *tokenRun) lastEnd(b []byte, from int) (at int, ok bool) {
	for i := len(b) - 1; i >= from; i-- {
		switch classes[b[i]] {
		case classEnd:
			if !r.brace.part(b, from, i) {
				return i, true
			}
		case classBlank:
			if i > from && classes[b[i-1]] == classToken {
				return i, true
			}
		default:
		}
	}
	return 0, false
}
