package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/rotate"
)

// maxLine bounds a line that is read, in bytes: an event within its bounds takes less than a third.
const maxLine = 512 << 10

// ErrNoFile means that an audit log is no regular file, and can't be read again.
var ErrNoFile = errors.New("it is no regular file")

// Tail reads the lines of a log from its oldest file on, also while it is written and rotated.
type Tail struct {
	path string
	// open are the files that are read, oldest first; the last one is being written.
	open []*os.File
	part []byte // a line that has no end yet
	skip bool   // the line is too long, and is thrown away to its end
	// Bad counts lines that can't be read.
	Bad uint64
}

// NewTail reads the log at path, which needn't be there yet.
func NewTail(path string) *Tail { return &Tail{path: path} }

// SkipToEnd leaves out what the log holds by now.
func (t *Tail) SkipToEnd() error {
	f, err := openLog(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		t.open = append(t.open, f)
		_, err = f.Seek(0, io.SeekEnd)
	}
	return err
}

// Close closes the files.
func (t *Tail) Close() error {
	err := closeFiles(t.open)
	t.open = nil
	return err
}

// Next calls each with every line that is there by now and its event, and returns at the log's end. Called again it goes
// on there. An error of each ends it.
func (t *Tail) Next(each func(line []byte, ev *Event) error) error {
	for {
		newer, err := t.newer()
		if err != nil {
			return err
		}
		// What was there before the newer files were found is read to its end first: their writer has left it.
		for len(t.open) > 0 {
			if err := t.read(t.open[0], each); err != nil {
				return err
			}
			if len(t.open) == 1 && len(newer) == 0 {
				return nil
			}
			t.endFile()
			_ = t.open[0].Close() // it was only read
			t.open = t.open[1:]
		}
		if t.open = newer; len(newer) == 0 {
			return nil
		}
	}
}

// newer opens the files that came after the last open one, oldest first; all where none is open. A file is looked for
// under its own name first and under the names that it gets by rotation then, so that none is missed while it moves.
func (t *Tail) newer() ([]*os.File, error) {
	var last os.FileInfo
	if n := len(t.open); n > 0 {
		var err error
		if last, err = t.open[n-1].Stat(); err != nil {
			return nil, err
		}
	}
	var found []*os.File
	missing := 0 // while files are renamed there is one gap
	for i := 0; missing < 2; i++ {
		f, err := openLog(rotate.Name(t.path, i))
		if errors.Is(err, fs.ErrNotExist) {
			missing++
			continue
		}
		if err != nil {
			return nil, errors.Join(err, closeFiles(found))
		}
		info, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close(), closeFiles(found))
		}
		missing = 0
		if last != nil && os.SameFile(last, info) {
			_ = f.Close()
			break
		}
		if len(found) > 0 && sameOpen(found[0], info) { // rotated between two opens
			_ = f.Close()
			continue
		}
		found = append([]*os.File{f}, found...)
	}
	return found, nil
}

func sameOpen(f *os.File, info os.FileInfo) bool {
	have, err := f.Stat()
	return err == nil && os.SameFile(have, info)
}

func closeFiles(files []*os.File) error {
	errs := make([]error, 0, len(files))
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// openLog opens a regular file without waiting for the writer of a pipe.
func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("audit log can't be read: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("audit log %s can't be read: %w", strconv.Quote(path), ErrNoFile)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// read gives each the lines up to the file's end.
func (t *Tail) read(f *os.File, each func([]byte, *Event) error) error {
	buf := make([]byte, batchBytes)
	for {
		n, err := f.Read(buf)
		for rest := buf[:n]; len(rest) > 0; {
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				t.grow(rest)
				break
			}
			t.grow(rest[:end])
			if err := t.line(each); err != nil {
				return err
			}
			rest = rest[end+1:]
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("audit log can't be read: %w", err)
		}
	}
}

func (t *Tail) grow(b []byte) {
	if t.skip = t.skip || len(t.part)+len(b) > maxLine; !t.skip {
		t.part = append(t.part, b...)
	}
}

// line ends a line.
func (t *Tail) line(each func([]byte, *Event) error) error {
	line := t.part
	bad := t.skip
	t.part, t.skip = t.part[:0], false
	if len(line) == 0 && !bad {
		return nil // the end of one that a kill left unfinished
	}
	var ev Event
	if sound := !bad && json.Unmarshal(line, &ev) == nil; sound {
		return each(line, &ev)
	}
	t.Bad++
	return nil
}

// endFile throws away what a file ends with that is no line.
func (t *Tail) endFile() {
	if len(t.part) > 0 || t.skip {
		t.Bad++
	}
	t.part, t.skip = t.part[:0], false
}
