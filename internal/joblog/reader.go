package joblog

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Piece is a part of a log, in the order in which it was written.
type Piece struct {
	Time   time.Time
	Stream Stream
	// Data is valid until the next call.
	Data []byte
	// Missing is how many bytes of output are missing here: Data is empty then. They are older than what the ring keeps, or
	// the disk had no room for them.
	Missing int64
}

// Reader reads a log. It is for one goroutine.
type Reader struct {
	dir, name string
	file      *os.File
	number    uint64 // of file
	offset    int64  // of the next record in file
	pos       int64  // bytes of output that were read, or are missing
	held      map[uint64]*os.File
	list      func(dir, name string) ([]uint64, error)
	buf       [recordHead + maxPayload]byte
}

// newReader reads from the oldest byte that is kept. One that isn't there is empty.
func newReader(dir, name string) *Reader { return &Reader{dir: dir, name: name, list: segments} }

// Pos is how many bytes of output were read so far, or are missing.
func (r *Reader) Pos() int64 { return r.pos }

// ReadFrom is what was written from a byte of the output on, both streams in the order in which it was written: at most
// most bytes, up to the first that are missing. missing is how many are missing before them. What lies in segments
// before that byte is not read.
func ReadFrom(dir, name string, from int64, most int) (data []byte, missing int64, err error) {
	r := newReader(dir, name)
	defer func() { _ = r.Close() }() // it was only read
	if err := r.seek(from); err != nil {
		return nil, 0, err
	}
	for len(data) < most {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		switch behind := r.pos - from; { // how much of the piece, and what was read before it, was asked for
		case behind <= 0:
		case p.Missing > 0 && len(data) > 0:
			return data, missing, nil
		case p.Missing > 0:
			missing += min(p.Missing, behind-missing)
		default:
			part := p.Data[max(int64(len(p.Data))-behind, 0):]
			data = append(data, part[:min(len(part), most-len(data))]...)
		}
	}
	return data, missing, nil
}

// Size is how many bytes of output there are so far, those that are missing included. It reads the newest segment alone.
func Size(dir, name string) (int64, error) {
	r := newReader(dir, name)
	defer func() { _ = r.Close() }() // it was only read
	err := r.seek(math.MaxInt64)
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, io.EOF) {
		return 0, err
	}
	return r.pos, nil
}

// seek goes on to the newest segment that begins at a byte of the output or before it, if there is one.
func (r *Reader) seek(to int64) error {
	all, err := r.list(r.dir, r.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, n := range slices.Backward(all) {
		f, err := r.openSegment(n)
		if errors.Is(err, fs.ErrNotExist) {
			break // the writer deletes the oldest first
		}
		if err != nil {
			return err
		}
		rec, length, err := readRecord(f, &r.buf)
		if err == nil && rec.stream == position {
			if before := int64(binary.BigEndian.Uint64(rec.data)); before >= 0 && before <= to {
				r.file, r.number, r.offset, r.pos = f, n, length, before
				return nil
			}
		}
		_ = f.Close() // it was only read
	}
	return nil
}

// Next is the next piece. io.EOF tells that there is no more yet; a later call looks again.
func (r *Reader) Next() (Piece, error) {
	for {
		if r.file == nil {
			if err := r.advance(); err != nil {
				return Piece{}, err
			}
		}
		p, err := r.read()
		switch {
		case err == nil && (len(p.Data) > 0 || p.Missing > 0):
			return p, nil
		case err == nil: // a segment's beginning
		case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return Piece{}, err
		default:
			// A writer goes on to the next segment for good: this one is read to its end if there is one.
			next, found, nextErr := r.following()
			if nextErr != nil {
				return Piece{}, nextErr
			}
			if !found {
				return Piece{}, io.EOF
			}
			if p, err := r.read(); err == nil { // written between the two looks
				if len(p.Data) > 0 || p.Missing > 0 {
					return p, nil
				}
				continue
			}
			if err := r.open(next); err != nil {
				return Piece{}, err
			}
		}
	}
}

// read reads a record at the offset; half a one is left for later.
func (r *Reader) read() (Piece, error) {
	if _, err := r.file.Seek(r.offset, io.SeekStart); err != nil {
		return Piece{}, err
	}
	rec, n, err := readRecord(r.file, &r.buf)
	if err != nil {
		return Piece{}, err
	}
	r.offset += n
	if rec.stream != position {
		r.pos += int64(len(rec.data))
		return Piece{Time: rec.at, Stream: rec.stream, Data: rec.data}, nil
	}
	before := int64(binary.BigEndian.Uint64(rec.data))
	missing := before - r.pos
	if missing < 0 {
		return Piece{}, ErrDamaged
	}
	r.pos = before
	return Piece{Time: rec.at, Missing: missing}, nil
}

// advance opens the first segment there is, io.EOF if there is none.
func (r *Reader) advance() error {
	next, found, err := r.following()
	if err != nil {
		return err
	}
	if !found {
		return io.EOF
	}
	return r.open(next)
}

// following is the number of the oldest segment behind the open one.
func (r *Reader) following() (uint64, bool, error) {
	all, err := r.list(r.dir, r.name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	for n := range r.held {
		all = append(all, n)
	}
	slices.Sort(all)
	for _, n := range all {
		if r.file == nil || n > r.number {
			return n, true, nil
		}
	}
	return 0, false, nil
}

// open goes on to a segment. One that the writer deleted meanwhile is passed over.
func (r *Reader) open(n uint64) error {
	f, err := r.segment(n)
	for errors.Is(err, fs.ErrNotExist) {
		var found bool
		if n, found, err = r.following(); err != nil {
			return err
		}
		if !found {
			return io.EOF
		}
		f, err = r.segment(n)
	}
	if err != nil {
		return err
	}
	r.leave()
	r.file, r.number, r.offset = f, n, 0
	return nil
}

func (r *Reader) segment(n uint64) (*os.File, error) {
	if f := r.held[n]; f != nil {
		return f, nil
	}
	return r.openSegment(n)
}

// openSegment follows no link and waits for nobody who writes: behind either is a file of somebody else.
func (r *Reader) openSegment(n uint64) (*os.File, error) {
	return os.OpenFile(filepath.Join(r.dir, segmentName(r.name, n)), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// Hold keeps the segments that are there until Close, so that a rewind leads to the same beginning.
func (r *Reader) Hold() error {
	all, err := r.list(r.dir, r.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.held = make(map[uint64]*os.File, len(all))
	for _, n := range all {
		f, err := r.openSegment(n)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		r.held[n] = f
	}
	return nil
}

// rewind reads from the oldest byte again.
func (r *Reader) rewind() {
	r.leave()
	r.pos = 0
}

// leave closes the open segment, if it isn't held.
func (r *Reader) leave() {
	if r.file != nil && r.held[r.number] != r.file {
		_ = r.file.Close() // it was only read
	}
	r.file = nil
}

// Close closes the segments.
func (r *Reader) Close() error {
	r.leave()
	errs := make([]error, 0, len(r.held))
	for _, f := range r.held {
		errs = append(errs, f.Close())
	}
	r.held = nil
	return errors.Join(errs...)
}
