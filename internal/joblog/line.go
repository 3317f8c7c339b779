package joblog

import (
	"bytes"
	"slices"
	"time"
)

// maxLine is the most bytes that a Line holds. A longer one comes in several, all but the last without the newline.
const maxLine = 16 << 10

// Line is a line of one stream with its newline, or a part of a long one.
type Line struct {
	Time   time.Time // when its first byte was written
	Stream Stream
	Data   []byte // the caller's to keep
	// Missing is as in Piece.
	Missing int64
}

// Lines reads a log line by line. It is for one goroutine.
type Lines struct {
	*Reader
	begun map[Stream]*Line
	ready []Line
}

// NewLines reads as NewReader does.
func NewLines(dir, name string) *Lines {
	return &Lines{Reader: newReader(dir, name), begun: map[Stream]*Line{}}
}

// Next is the next line. io.EOF tells that none is complete yet; a later call looks again.
func (l *Lines) Next() (Line, error) {
	for len(l.ready) == 0 {
		p, err := l.Reader.Next()
		if err != nil {
			return Line{}, err
		}
		l.take(p)
	}
	first := l.ready[0]
	l.ready = l.ready[1:]
	return first, nil
}

// Rewind reads from the oldest byte again.
func (l *Lines) Rewind() {
	l.rewind()
	clear(l.begun)
	l.ready = nil
}

// Rest is what stands behind the last newlines, for when no more will be written.
func (l *Lines) Rest() []Line {
	var rest []Line
	for _, s := range []Stream{Stdout, Stderr} {
		if b := l.begun[s]; b != nil {
			rest = append(rest, *b)
		}
	}
	slices.SortStableFunc(rest, func(a, b Line) int { return a.Time.Compare(b.Time) })
	clear(l.begun)
	return rest
}

func (l *Lines) take(p Piece) {
	if p.Missing > 0 { // what follows belongs to other lines
		l.ready = append(append(l.ready, l.Rest()...), Line{Time: p.Time, Missing: p.Missing})
		return
	}
	for data := p.Data; len(data) > 0; {
		line := l.begun[p.Stream]
		if line == nil {
			line = &Line{Time: p.Time, Stream: p.Stream}
			l.begun[p.Stream] = line
		}
		n := min(bytes.IndexByte(data, '\n')+1, maxLine-len(line.Data))
		if n == 0 {
			n = min(len(data), maxLine-len(line.Data))
		}
		line.Data = append(line.Data, data[:n]...)
		data = data[n:]
		if len(line.Data) == maxLine || line.Data[len(line.Data)-1] == '\n' {
			l.ready = append(l.ready, *line)
			delete(l.begun, p.Stream)
		}
	}
}
