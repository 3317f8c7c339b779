package mask

import (
	"errors"
	"io"
)

// readSize is how much is asked of the source at once.
const readSize = 64 << 10

// minRead is asked for when the caller has no room left.
const minRead = 1 << 10

// slack is room for replacements that are longer than what they replace, before
// a piece has to be copied twice.
const slack = 256

// Reader gives out what a Stream makes of a source.
type Reader struct {
	source io.Reader
	stream *Stream
	out    []byte // what did not fit into the caller's buffer
	at     int
	err    error
}

var _ io.Reader = (*Reader)(nil)

// NewReader returns a Reader. It reads no further ahead than one Read of the
// source, so that a live stream stays one.
func NewReader(source io.Reader, stream *Stream) *Reader {
	return &Reader{source: source, stream: stream}
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
		size := max(minRead, min(readSize, len(p)-r.stream.pending()-slack))
		n, err := r.source.Read(r.stream.room(size))
		// What is held back is let go when the source is at its end; not when
		// it broke off, where a value might have followed.
		out, pushErr := r.stream.advance(p[:0:len(p)], n, errors.Is(err, io.EOF))
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
