package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/msb-project/msb/internal/rotate"
)

// rotating is an output to a file that is set aside when it grows too long.
type rotating struct {
	rotate.File
	// deletedLine makes the line that says how many lines were deleted with a file.
	deletedLine func(lines uint64) []byte
	// unreported is how many lines were deleted and not yet reported.
	unreported uint64
	// first is the file that was opened at first: a pipe is never rotated.
	first *os.File
}

func openRotating(path string, maxBytes int64, keep int, deletedLine func(uint64) []byte) (*rotating, error) {
	r := &rotating{File: rotate.File{Path: path, Max: maxBytes, Keep: keep, Opener: openAppend}, deletedLine: deletedLine}
	err := r.open()
	r.first = r.File.File
	return r, err
}

func openAppend(path string) (*os.File, error) {
	return rotate.OpenNow(path, os.O_RDWR|os.O_APPEND)
}

// open opens the file for appending. A last line that a killed process left unfinished is ended, so that it spoils no
// other line.
func (r *rotating) open() error {
	if err := r.Open(); err != nil {
		return fmt.Errorf("audit log can't be opened: %w", err)
	}
	last := []byte{'\n'}
	if r.Size > 0 {
		_, _ = r.ReadAt(last, r.Size-1)
	}
	if last[0] != '\n' {
		return r.Append([]byte{'\n'})
	}
	return nil
}

// write implements output.
func (r *rotating) write(lines []byte) (n int, err error) {
	if r.File.File == nil { // a rotation went wrong: the path may be usable again
		if err := r.open(); err != nil {
			return 0, err
		}
	}
	return r.Write(lines, func(b []byte) int { return bytes.IndexByte(b, '\n') + 1 }, r.rotate)
}

// rotate starts a new file, which begins with how many lines the one had that was deleted for it, so that a guest can't
// push what it did out of the log without a trace.
func (r *rotating) rotate() error {
	lines, err := linesIn(rotate.Name(r.Path, r.Keep))
	if err == nil {
		err = r.SetAside()
	}
	if err != nil {
		return fmt.Errorf("audit log can't be rotated: %w", errors.Join(err, r.Close()))
	}
	r.unreported += lines
	if err := r.open(); err != nil || r.unreported == 0 {
		return err
	}
	if err := r.Append(r.deletedLine(r.unreported)); err != nil {
		return err
	}
	r.unreported = 0
	return nil
}

// linesIn counts the lines of the file at path; one that isn't there has none.
// It is read in pieces once for each rotation: 64 MiB take some 20 ms.
func linesIn(path string) (uint64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var lines uint64
	buf := make([]byte, batchBytes)
	for {
		n, err := f.Read(buf)
		lines += countLines(buf[:n])
		if errors.Is(err, io.EOF) {
			return lines, f.Close()
		}
		if err != nil {
			return 0, errors.Join(err, f.Close())
		}
	}
}

// hurry implements output. A file that no deadline can be set for, as every regular one, keeps nobody waiting.
func (r *rotating) hurry(by time.Time) { _ = r.first.SetWriteDeadline(by) }

// close implements output.
func (r *rotating) close() error { return r.Close() }
