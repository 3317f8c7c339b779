//go:build linux

package agentd

import (
	"github.com/msb-project/msb/agentd/agentpb"
)

// chunkWriter gathers an archive's small writes into messages.
type chunkWriter struct {
	send func([]byte) error
	buf  []byte
}

func (w *chunkWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		part := min(len(b), agentpb.FileChunkBytes-len(w.buf))
		w.buf, b = append(w.buf, b[:part]...), b[part:]
		if len(w.buf) == agentpb.FileChunkBytes {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (w *chunkWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.send(w.buf)
	w.buf = w.buf[:0]
	return err
}

// chunkReader reads messages as one stream.
type chunkReader struct {
	next func() ([]byte, error)
	rest []byte
}

func (r *chunkReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		next, err := r.next()
		if err != nil {
			return 0, err
		}
		r.rest = next
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
