package rootfs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
)

// Spool holds file contents of one layer, one after the other, in a file whose
// name no layer chose. Blocks of zeros become holes. One goroutine writes.
type Spool struct {
	f   *os.File
	end int64
	buf []byte
}

// spoolBlock is the unit of holes: the page and ext4 block size. Bytes.
const spoolBlock = 4096

// spoolBuffer is read at once. Bytes.
const spoolBuffer = 256 << 10

// NewSpool spools into f, which must be empty and stays the caller's to close.
func NewSpool(f *os.File) *Spool {
	return &Spool{f: f, buf: make([]byte, spoolBuffer)}
}

var zeroBlock [spoolBlock]byte

// append copies exactly size bytes of r.
func (s *Spool) append(ctx context.Context, r io.Reader, size int64) (extent, error) {
	start := (s.end + spoolBlock - 1) &^ (spoolBlock - 1)
	pos := start
	for left := size; left > 0; {
		if err := ctx.Err(); err != nil {
			return extent{}, err
		}
		n, err := io.ReadFull(r, s.buf[:min(left, int64(len(s.buf)))])
		if err != nil {
			return extent{}, err
		}
		if err := s.writeSparse(s.buf[:n], pos); err != nil {
			return extent{}, err
		}
		pos += int64(n)
		left -= int64(n)
	}
	s.end = pos
	return extent{spool: s, offset: start, size: size}, nil
}

// writeSparse writes runs of blocks that hold something.
func (s *Spool) writeSparse(p []byte, pos int64) error {
	for len(p) > 0 {
		skip := 0
		for skip < len(p) && isZero(p[skip:min(skip+spoolBlock, len(p))]) {
			skip = min(skip+spoolBlock, len(p))
		}
		p, pos = p[skip:], pos+int64(skip)
		run := 0
		for run < len(p) && !isZero(p[run:min(run+spoolBlock, len(p))]) {
			run = min(run+spoolBlock, len(p))
		}
		if run == 0 {
			continue
		}
		if _, err := s.f.WriteAt(p[:run], pos); err != nil {
			return fmt.Errorf("spool a layer: %w", err)
		}
		p, pos = p[run:], pos+int64(run)
	}
	return nil
}

func isZero(p []byte) bool { return bytes.Equal(p, zeroBlock[:len(p)]) }

// finish makes trailing holes readable.
func (s *Spool) finish() error {
	s.buf = nil
	if err := s.f.Truncate(s.end); err != nil {
		return fmt.Errorf("spool a layer: %w", err)
	}
	return nil
}
