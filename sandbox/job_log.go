package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/msb-project/msb/internal/joblog"
)

// LogOptions say which part of a job's output is read. The zero value is all that is kept.
type LogOptions struct {
	// Follow waits for more until the job has ended.
	Follow bool
	// Since leaves out lines that were written before.
	Since time.Time
	// Tail skips all but the last Tail lines of the existing output; 0 skips none, -1 all.
	Tail int
}

// LogEntry is a line of a job's output.
type LogEntry struct {
	Time time.Time
	// Stderr is true for standard error. With a terminal, everything is standard output.
	Stderr bool
	// Data is the line with its newline. One above 16 KiB comes in several entries, of which the last has the newline.
	Data []byte
	// Missing is how many bytes of output are missing here; Data is empty then. They are older than what is kept, or the
	// host's disk had no room for them.
	Missing int64
}

// LogReader reads a job's output. It is for one goroutine.
type LogReader struct {
	ctx    context.Context
	job    *Job
	opts   LogOptions
	opened time.Time
	status JobStatus // as of the last look
	lines  *joblog.Lines
	queue  []LogEntry
	// final says that no more will be written, ended that the lines which are there were read.
	final, ended bool
	rest         []byte
}

// Logs opens the job's output, whether the job and its sandbox run or not. The output is the guest's raw bytes, terminal
// escapes included. Closing the log, or never reading it, doesn't affect the job. Reads end with ctx.
func (j *Job) Logs(ctx context.Context, o LogOptions) (*LogReader, error) {
	st, err := j.Status()
	if err != nil {
		return nil, err
	}
	l := &LogReader{
		ctx: ctx, job: j, opts: o, opened: time.Now(), status: st, final: st.State != JobRunning,
		lines: joblog.NewLines(j.dir, j.name),
	}
	if o.Tail != 0 {
		if err := l.skip(); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// errNothingYet means that a line may come.
var errNothingYet = errors.New("no line yet")

// skip advances to the last Tail lines of the existing output. It counts the lines and reads them again, since 8 MiB of
// empty lines would take a hundred times that in memory.
func (l *LogReader) skip() error {
	if err := l.lines.Hold(); err != nil {
		return err
	}
	n, err := l.pass(math.MaxInt)
	if err != nil {
		return err
	}
	l.lines.Rewind()
	l.queue, l.ended = nil, false
	_, err = l.pass(n - max(l.opts.Tail, 0))
	return err
}

// pass skips up to that many lines, and returns how many it skipped.
func (l *LogReader) pass(most int) (n int, err error) {
	for n < most {
		e, err := l.next()
		if errors.Is(err, io.EOF) || errors.Is(err, errNothingYet) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if e.Time.After(l.opened) { // a job may write faster than this reads
			return n, nil
		}
		n++
	}
	return n, nil
}

// Next is the next line. io.EOF is the end: of what is there, or with Follow that of the job.
func (l *LogReader) Next() (LogEntry, error) {
	for {
		e, err := l.next()
		if !errors.Is(err, errNothingYet) {
			return e, err
		}
		if err := l.job.recordable(); err != nil {
			return LogEntry{}, err
		}
		select {
		case <-l.ctx.Done():
			return LogEntry{}, l.ctx.Err()
		case <-time.After(jobPause):
		}
	}
}

// next is Next without the wait.
func (l *LogReader) next() (LogEntry, error) {
	for {
		if err := l.ctx.Err(); err != nil {
			return LogEntry{}, err
		}
		if len(l.queue) > 0 {
			first := l.queue[0]
			l.queue = l.queue[1:]
			return first, nil
		}
		if l.ended {
			return LogEntry{}, io.EOF
		}
		line, err := l.lines.Next()
		switch {
		case errors.Is(err, io.EOF) && (l.final || !l.opts.Follow):
			l.finish()
		case errors.Is(err, io.EOF):
			if err := l.look(); err != nil {
				return LogEntry{}, err
			}
			if !l.final {
				return LogEntry{}, errNothingYet
			}
		case err != nil:
			return LogEntry{}, Fail(fmt.Errorf("%w: %w; `msb job rm` removes it", ErrState, err))
		case !l.opts.Follow && line.Time.After(l.opened):
			l.ended = true
		default:
			l.add(line)
		}
	}
}

// look asks whether the job has ended. What was written before that is read after it.
func (l *LogReader) look() error {
	st, err := l.job.Status()
	switch {
	case errors.Is(err, ErrNoJob):
		l.final = true
	case err != nil:
		return err
	default:
		l.status, l.final = st, st.State != JobRunning
	}
	return nil
}

// finish queues what stands behind the last newline.
func (l *LogReader) finish() {
	l.ended = true
	for _, line := range l.lines.Rest() {
		l.add(line)
	}
	if missing := l.status.OutputBytes - l.lines.Pos(); l.final && missing > 0 && l.status.Ended != nil {
		l.add(joblog.Line{Time: *l.status.Ended, Missing: missing})
	}
}

func (l *LogReader) add(line joblog.Line) {
	if line.Time.Before(l.opts.Since) {
		return
	}
	l.queue = append(l.queue, LogEntry{Time: line.Time, Stderr: line.Stream == joblog.Stderr, Data: line.Data, Missing: line.Missing})
}

// Read implements io.Reader: the lines of both streams as one, without missing output.
func (l *LogReader) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		e, err := l.Next()
		if err != nil {
			return 0, err
		}
		l.rest = e.Data
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (l *LogReader) Close() error { return l.lines.Close() }
