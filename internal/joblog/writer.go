package joblog

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/rotate"
)

const (
	// segmentBytes is when a segment is full. One record may go over it.
	segmentBytes = 1 << 20
	// segmentsKept is how many a ring holds.
	segmentsKept = 8
	// MaxBytes bounds what a log takes on the disk: the segments, and one record over the end of each.
	MaxBytes = segmentsKept * (segmentBytes + recordHead + maxPayload)

	// retryAfter is how long output is dropped before the disk is tried again.
	retryAfter = time.Second
)

// Writer appends to a log. Its methods may be called from several goroutines.
type Writer struct {
	// Room says how many bytes may be written now; nil is as many as the disk takes.
	Room func() (int64, error)

	now       func() time.Time
	dir, name string
	opener    func(path string) (*os.File, error)

	mu     sync.Mutex
	open   *rotate.File // nil while output is dropped
	oldest uint64
	next   uint64 // the number of the segment after the open one
	retry  time.Time
	total  int64 // bytes of output, written or not
	lost   int64 // bytes that were not written
	buf    []byte
	closed bool
}

// NewWriter begins a log in dir, which is there. The name holds no dot. Nothing is made before there is output.
func NewWriter(dir, name string) *Writer {
	return &Writer{dir: dir, name: name, opener: openNew, now: time.Now}
}

// Resume goes on with a log that another Writer has closed: total is how many bytes of output there were, lost how many of
// them were not written.
func Resume(dir, name string, total, lost int64) (*Writer, error) {
	all, err := segments(dir, name)
	if err != nil {
		return nil, err
	}
	w := NewWriter(dir, name)
	w.total, w.lost = total, lost
	if len(all) == 0 {
		return w, nil
	}
	last := all[len(all)-1]
	w.oldest, w.next = all[0], last+1
	size, err := Size(dir, name)
	f := &rotate.File{Path: w.path(last), Opener: openLast}
	if err == nil && size == total && f.Open() == nil { // else the next segment's position tells what is missing
		w.open = f
	}
	return w, nil
}

// openLast follows no link and waits for nobody who reads.
func openLast(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// Stream is a writer of that stream. It never fails: what the disk doesn't take is counted (Lost), and the process whose
// output it is goes on.
func (w *Writer) Stream(s Stream) io.Writer { return streamWriter{w, s} }

type streamWriter struct {
	w *Writer
	s Stream
}

// Write implements io.Writer.
func (s streamWriter) Write(p []byte) (int, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for rest := p; len(rest) > 0; {
		piece := rest[:min(len(rest), maxPayload)]
		s.w.write(s.s, piece)
		rest = rest[len(piece):]
	}
	return len(p), nil
}

// Total is the number of bytes of output so far, Lost that of those which were not written.
func (w *Writer) Total() int64 { return w.count(&w.total) }

// Lost is how much of Total the disk did not take.
func (w *Writer) Lost() int64 { return w.count(&w.lost) }

func (w *Writer) count(n *int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *n
}

// Close ends the log. What is written later is dropped.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return w.closeSegment()
}

func (w *Writer) write(s Stream, p []byte) {
	if !w.append(s, p) {
		w.lost += int64(len(p))
	}
	w.total += int64(len(p))
}

// append reports whether the piece was written.
func (w *Writer) append(s Stream, p []byte) bool {
	now := w.now()
	if w.closed || w.open == nil && now.Before(w.retry) {
		return false
	}
	var err error
	if w.open != nil && w.open.Size >= segmentBytes {
		err = w.closeSegment()
	}
	switch {
	case err != nil:
	case w.open == nil:
		err = w.openSegment(now, s, p)
	default:
		w.buf = appendRecord(w.buf[:0], s, now, p)
		err = w.open.Append(w.buf)
	}
	if err == nil {
		return true
	}
	// The next one that is written begins a segment, whose position tells how much is missing before it.
	w.retry = now.Add(retryAfter)
	_ = w.closeSegment() // the disk has said already that it takes no more
	return false
}

func (w *Writer) closeSegment() error {
	if w.open == nil {
		return nil
	}
	f := w.open
	w.open = nil
	return f.Close()
}

// openSegment begins the next segment with a first record, after the oldest was deleted if there are as many as there
// may be. A disk that takes no record gets no segment either: empty ones would push out those with output.
func (w *Writer) openSegment(now time.Time, s Stream, p []byte) error {
	full := w.next-w.oldest >= segmentsKept
	if full { // the new one needs no more room than the oldest had
		if err := os.Remove(w.path(w.oldest)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		w.oldest++
	}
	if w.Room != nil && !full {
		room, err := w.Room()
		if err != nil {
			return err
		}
		if room < segmentBytes {
			return errNoRoom
		}
	}
	f := &rotate.File{Path: w.path(w.next), Opener: w.opener}
	if err := f.Open(); err != nil {
		return err
	}
	w.buf = appendRecord(w.buf[:0], position, now, binary.BigEndian.AppendUint64(nil, uint64(w.total)))
	w.buf = appendRecord(w.buf, s, now, p)
	if err := f.Append(w.buf); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Path))
	}
	w.open = f
	w.next++
	return nil
}

func openNew(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
}

// errNoRoom means that the disk is full, as far as a guest may fill it.
var errNoRoom = errors.New("no room for a job's output")

func (w *Writer) path(n uint64) string { return filepath.Join(w.dir, segmentName(w.name, n)) }
