package ext4disk

import (
	"bytes"
	"io"
	"os"
)

// sparseFile leaves holes where zeros are appended. What was written before is
// always written again, so that a later zero wins over an earlier byte.
type sparseFile struct {
	f         *os.File
	pos, high int64
}

var _ io.ReadWriteSeeker = (*sparseFile)(nil)

var zeroBlock [blockSize]byte

// Read implements io.Reader.
func (s *sparseFile) Read(p []byte) (int, error) {
	n, err := s.f.ReadAt(p, s.pos)
	s.pos += int64(n)
	return n, err
}

// Seek implements io.Seeker.
func (s *sparseFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.pos
	case io.SeekEnd:
		offset += s.high
	}
	if offset < 0 {
		return 0, os.ErrInvalid
	}
	s.pos = offset
	return offset, nil
}

// Write implements io.Writer.
func (s *sparseFile) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		skip := 0
		for s.pos+int64(skip) >= s.high && skip < len(p) && isZero(p[skip:min(skip+blockSize, len(p))]) {
			skip = min(skip+blockSize, len(p))
		}
		run := skip
		for run < len(p) && (s.pos+int64(run) < s.high || !isZero(p[run:min(run+blockSize, len(p))])) {
			run = min(run+blockSize, len(p))
		}
		if run > skip {
			if n, err := s.f.WriteAt(p[skip:run], s.pos+int64(skip)); err != nil {
				return total - len(p) + skip + n, err
			}
		}
		s.pos += int64(run)
		s.high = max(s.high, s.pos)
		p = p[run:]
	}
	return total, nil
}

// finish makes a hole at the end part of the file.
func (s *sparseFile) finish() error { return s.f.Truncate(s.high) }

func isZero(p []byte) bool { return bytes.Equal(p, zeroBlock[:len(p)]) }
