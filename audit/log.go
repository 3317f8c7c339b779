package audit

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultQueue is how many events wait for the disk: some MB at worst, and
	// a few seconds of a busy guest.
	DefaultQueue = 8192
	// DefaultMaxBytes is the size at which a file is rotated.
	DefaultMaxBytes = 64 << 20
	// DefaultKeep is how many rotated files are kept beside the current one.
	DefaultKeep = 4
	// batchBytes is how much is gathered for one write while more is waiting.
	batchBytes = 64 << 10
	// closeWait bounds how long a log that is closed waits for the reader of a pipe.
	closeWait = 5 * time.Second
)

// ErrClosed is returned by operations on a closed Log.
var ErrClosed = errors.New("audit log is closed")

// Options change how a Log works. Zero fields have defaults.
type Options struct {
	// Queue is how many events wait for the writer; the next ones are lost and
	// counted.
	Queue int
	// MaxBytes is the size at which a file is rotated, Keep how many rotated
	// files stay. Only for OpenLog.
	MaxBytes int64
	Keep     int
	// Sandbox is filled into events that name none.
	Sandbox string
	// Labels are added to every event; see CheckLabels. An event's own label of the
	// same key stays.
	Labels map[string]string
}

// Log is a Sink that writes JSON lines. Its methods may be called from any
// goroutine.
type Log struct {
	options Options
	out     output
	queue   chan entry
	now     func() time.Time
	encoder *encoder // of the writer

	patience time.Duration // closeWait, but in tests

	lost    atomic.Uint64 // what dropped events stand for, and no line says yet
	dropped atomic.Uint64 // the same in all

	mu     sync.RWMutex // Emit reads, Close writes
	closed bool

	done  chan struct{} // closed when the writer has ended
	errMu sync.Mutex
	err   error
}

var _ Sink = (*Log)(nil)

// output is where lines go.
type output interface {
	// write takes whole lines, and returns how many bytes of them it wrote.
	write(lines []byte) (int, error)
	// hurry ends writes that are not done by then. It is called by another goroutine than the others.
	hurry(by time.Time)
	close() error
}

// NewLog returns a Log that writes to w, which it closes on Close if it is an
// io.Closer. The caller must Close it.
func NewLog(w io.Writer, o Options) *Log { return newLog(stream{w}, o) }

// OpenLog returns a Log that appends to the file at path (made with mode 0600)
// and rotates it: path is renamed to path.1, path.1 to path.2, and so on. A file
// that follows the deletion of the oldest begins with a line of AuditRotated.
func OpenLog(path string, o Options) (*Log, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Keep <= 0 {
		o.Keep = DefaultKeep
	}
	f, err := openRotating(path, o.MaxBytes, o.Keep, func(lines uint64) []byte {
		ev := rotatedEvent(time.Now(), o, lines)
		line, err := newEncoder().appendLine(nil, ev)
		if err != nil {
			return nil // a fixed set of plain fields: there is nothing that can't be encoded
		}
		return line
	})
	if err != nil {
		return nil, err
	}
	return newLog(f, o), nil
}

func newLog(out output, o Options) *Log {
	if o.Queue <= 0 {
		o.Queue = DefaultQueue
	}
	l := &Log{
		options: o, out: out, now: time.Now, encoder: newEncoder(), patience: closeWait,
		queue: make(chan entry, o.Queue),
		done:  make(chan struct{}),
	}
	go l.run()
	return l
}

// Emit implements Sink. It takes a few hundred nanoseconds, whatever the disk
// does; an event that finds the queue full, or the log closed, is counted.
func (l *Log) Emit(ev Event) {
	ev = l.filled(ev)
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		l.dropped.Add(standsFor(&ev))
		return
	}
	select {
	case l.queue <- entry{Event: ev}:
	default:
		l.lose(standsFor(&ev))
	}
}

func (l *Log) filled(ev Event) Event {
	if ev.Time.IsZero() {
		ev.Time = l.now()
	}
	if ev.Sandbox == "" {
		ev.Sandbox = l.options.Sandbox
	}
	ev.Labels = withLabels(l.options.Labels, ev.Labels)
	return bounded(ev)
}

// entry is an event in the queue. written, if there is one, gets what came of its line.
type entry struct {
	Event
	written chan error
}

// Write adds an event and returns once its line is written, or an error: then what it announces must not happen. It
// waits for a bounded time.
func (l *Log) Write(ev Event) error {
	e := entry{l.filled(ev), make(chan error, 1)}
	slow := time.NewTimer(l.patience)
	defer slow.Stop()
	if err := l.enqueue(e, slow.C); err != nil {
		return err
	}
	select {
	case err := <-e.written:
		return err
	case <-slow.C:
		return errSlow
	}
}

// errSlow is of an output that takes nothing.
var errSlow = errors.New("audit log can't be written: nothing takes its lines")

func (l *Log) enqueue(e entry, slow <-chan time.Time) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return ErrClosed
	}
	select {
	case l.queue <- e:
		return nil
	case <-slow:
		return errSlow
	}
}

// Dropped returns how many events were lost since the log was opened. One with a Count is as many.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// Err returns the first error of writing. The log goes on after one: a disk
// that was full may have room again.
func (l *Log) Err() error {
	l.errMu.Lock()
	defer l.errMu.Unlock()
	return l.err
}

// Close writes what is queued and closes the file. It returns the first error of writing, such as that the reader of a
// pipe takes nothing. A second Close returns ErrClosed.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.closed = true
	close(l.queue) // nobody sends any more: Emit looks at closed under the lock
	l.mu.Unlock()
	l.out.hurry(time.Now().Add(l.patience))
	<-l.done
	return l.Err()
}

func droppedEvent(t time.Time, o Options, n uint64) Event {
	return Event{
		Time: t, Sandbox: o.Sandbox, Labels: o.Labels, Kind: AuditDropped, Count: n,
		Message: fmt.Sprintf("%d events were lost: they came faster than they could be written, or could not be written", n),
	}
}

// rotatedEvent reports lines that were deleted with the oldest file.
func rotatedEvent(t time.Time, o Options, n uint64) Event {
	return Event{
		Time: t, Sandbox: o.Sandbox, Labels: o.Labels, Kind: AuditRotated, Count: n,
		Message: fmt.Sprintf("the oldest file was deleted, and %d lines with it", n),
	}
}

// batch is lines that are written at once, and what each stands for.
type batch struct {
	lines       []byte
	stand       []uint64
	hasLostLine bool // the last line is about losses, which are counted already
}

// run is the writer: it gathers what is queued into few writes.
func (l *Log) run() {
	defer close(l.done)
	var b batch
	for e := range l.queue {
		if e.written != nil {
			e.written <- l.alone(&b, e.Event)
			continue
		}
		_ = l.line(&b, e.Event) // it was noted, as what flush returns is
		if len(l.queue) == 0 || len(b.lines) >= batchBytes {
			_ = l.flush(&b)
		}
	}
	_ = l.flush(&b)
	l.note(l.out.close())
}

// alone writes what b has, and then ev by itself.
func (l *Log) alone(b *batch, ev Event) error {
	if len(b.lines) > 0 {
		if err := l.flush(b); err != nil {
			return err
		}
	}
	if err := l.line(b, ev); err != nil {
		return err
	}
	return l.flush(b)
}

// line appends ev as a line.
func (l *Log) line(b *batch, ev Event) error {
	lines, err := l.encoder.appendLine(b.lines, ev)
	if err != nil {
		l.note(err)
		l.lose(standsFor(&ev))
		return err
	}
	b.lines, b.stand = lines, append(b.stand, standsFor(&ev))
	return nil
}

// standsFor is how many verdicts, frames or lines an event is about: a lost line of a flood is as many lost ones.
func standsFor(ev *Event) uint64 { return max(1, ev.Count) }

// lose counts what gets no line.
func (l *Log) lose(n uint64) {
	l.lost.Add(n)
	l.dropped.Add(n)
}

// flush writes b, with a line about what was lost if anything was.
func (l *Log) flush(b *batch) (err error) {
	if n := l.lost.Swap(0); n > 0 {
		_ = l.line(b, droppedEvent(l.now(), l.options, n))
		b.hasLostLine = true
	}
	if len(b.lines) > 0 {
		n, failed := l.out.write(b.lines)
		if failed != nil {
			err = fmt.Errorf("audit log can't be written: %w", failed)
			l.note(err)
			missing := b.stand[countLines(b.lines[:n]):]
			if last := len(missing) - 1; b.hasLostLine && last >= 0 {
				l.lost.Add(missing[last])
				missing = missing[:last]
			}
			for _, n := range missing {
				l.lose(n)
			}
		}
	}
	b.lines, b.stand, b.hasLostLine = b.lines[:0], b.stand[:0], false
	return err
}

func countLines(b []byte) uint64 {
	n := uint64(0)
	for _, c := range b {
		if c == '\n' {
			n++
		}
	}
	return n
}

func (l *Log) note(err error) {
	l.errMu.Lock()
	defer l.errMu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

// stream is an output that is never rotated.
type stream struct{ w io.Writer }

func (s stream) write(b []byte) (int, error) { return s.w.Write(b) }

func (stream) hurry(time.Time) {}

func (s stream) close() error {
	if c, ok := s.w.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
