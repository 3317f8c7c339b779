package mask

import (
	"errors"
	"io"
	"time"
)

// readSize is how much is asked of the source at once.
const readSize = 64 << 10

// minRead is asked for when the caller has no room left.
const minRead = 1 << 10

// slack is room for replacements that are longer than what they replace, before
// a piece has to be copied twice.
const slack = 256

// quietTime is for how long a live answer may be silent before what is held back
// of it is let go: longer than a round trip, so that a guest can't bring a
// silence about by not reading, and bearable in a conversation.
const quietTime = time.Second

// Reader gives out what a Stream makes of a source.
type Reader struct {
	source  io.Reader
	stream  *Stream
	out     []byte // what did not fit into the caller's buffer
	at      int
	err     error
	waiting chan piece // a read that outlasted the quiet time
	quiet   time.Duration
}

// piece is what a read of the source gave.
type piece struct {
	data []byte
	err  error
}

var _ io.Reader = (*Reader)(nil)

// NewReader returns a Reader. It reads no further ahead than one Read of the
// source, so that a live stream stays one.
func NewReader(source io.Reader, stream *Stream) *Reader {
	return &Reader{source: source, stream: stream, quiet: quietTime}
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.at == len(r.out) {
		if r.err != nil {
			return 0, r.err
		}
		n, err, silent := r.next(len(p))
		if silent {
			out, err := r.stream.letGo(p[:0:len(p)])
			if err != nil {
				r.err = err
			}
			if len(out) > len(p) {
				r.out, r.at = out, 0
				break
			}
			if len(out) > 0 {
				return len(out), nil
			}
			continue
		}
		// What is held back is let go when the source is at its end; not when
		// it broke off, where a value might have followed.
		final := errors.Is(err, io.EOF)
		out, pushErr := r.stream.advance(p[:0:len(p)], n, final)
		r.err = err
		if pushErr != nil {
			r.err = pushErr
		}
		if r.err != nil {
			r.stream.release()
		}
		if len(out) > len(p) { // and so it lies elsewhere
			r.out, r.at = out, 0
			break
		}
		if len(out) > 0 {
			return len(out), nil
		}
	}
	n := copy(p, r.out[r.at:])
	r.at += n
	return n, nil
}

// next reads the next piece into the stream's room. It reports silent if none
// came for the quiet time while a live answer has something held back.
func (r *Reader) next(room int) (n int, err error, silent bool) { //nolint:revive // the error is the source's
	size := max(minRead, min(readSize, room-r.stream.held()-slack))
	live := r.stream.byShape && r.stream.loose
	if r.waiting == nil && (!live || r.stream.held() == 0) {
		n, err = r.source.Read(r.stream.room(size))
		return n, err, false
	}
	if r.waiting == nil {
		r.waiting = make(chan piece, 1)
		go func(to chan<- piece) {
			data := make([]byte, size)
			n, err := r.source.Read(data)
			to <- piece{data[:n], err}
		}(r.waiting)
	}
	var late <-chan time.Time
	if r.stream.held() > 0 {
		timer := time.NewTimer(r.quiet)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case got := <-r.waiting:
		r.waiting = nil
		return copy(r.stream.room(len(got.data)), got.data), got.err, false
	case <-late:
		return 0, nil, true
	}
}
