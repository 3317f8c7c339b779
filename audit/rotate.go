package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// rotating is an output to a file that is set aside when it grows too long.
type rotating struct {
	path string
	max  int64
	keep int
	f    *os.File
	size int64
	// told makes the line that says how many lines were deleted with a file.
	told func(lines uint64) []byte
	// untold is how many lines were deleted and not yet told of.
	untold uint64
}

// openRotating opens the file for appending. A last line that a killed process
// left unfinished is ended, so that it spoils no other line.
func openRotating(path string, maxBytes int64, keep int, told func(uint64) []byte) (*rotating, error) {
	r := &rotating{path: path, max: maxBytes, keep: keep, told: told}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *rotating) open() error {
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("audit log can't be opened: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("audit log can't be read: %w", err)
	}
	r.f, r.size = f, info.Size()
	if r.size > 0 && info.Mode().IsRegular() {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, r.size-1); err == nil && last[0] != '\n' {
			return r.append([]byte{'\n'})
		}
	}
	return nil
}

func (r *rotating) append(b []byte) error {
	n, err := r.f.Write(b)
	r.size += int64(n)
	return err
}

// write implements output. Files end at line borders and exceed the maximum
// only by a line that is longer than it.
func (r *rotating) write(lines []byte) error {
	if r.f == nil { // a rotation went wrong: the path may be usable again
		if err := r.open(); err != nil {
			return err
		}
	}
	for len(lines) > 0 {
		n := fitting(lines, r.max-r.size)
		if n == 0 && r.size > 0 {
			if err := r.rotate(); err != nil {
				return err
			}
			continue
		}
		if n == 0 {
			n = bytes.IndexByte(lines, '\n') + 1
		}
		if err := r.append(lines[:n]); err != nil {
			return err
		}
		lines = lines[n:]
	}
	return nil
}

// fitting returns how many bytes of whole lines fit into room.
func fitting(lines []byte, room int64) int {
	if int64(len(lines)) <= room {
		return len(lines)
	}
	return bytes.LastIndexByte(lines[:max(room, 0)], '\n') + 1
}

// rotate renames path.N to path.N+1 from the oldest on, and starts a new file.
// The oldest is deleted by that: the new file begins with how many lines it had,
// so that a guest can't push what it did out of the log without a trace.
func (r *rotating) rotate() error {
	err := r.f.Close()
	r.f = nil
	if err == nil {
		var lines uint64
		if lines, err = linesIn(r.name(r.keep)); err == nil {
			err = r.shift()
		}
		if err == nil {
			r.untold += lines
		}
	}
	if err != nil {
		return fmt.Errorf("audit log can't be rotated: %w", err)
	}
	if err := r.open(); err != nil {
		return err
	}
	if r.untold == 0 {
		return nil
	}
	if err := r.append(r.told(r.untold)); err != nil {
		return err
	}
	r.untold = 0
	return nil
}

// shift renames the files, over the oldest.
func (r *rotating) shift() error {
	for i := r.keep; i > 0; i-- {
		if err := os.Rename(r.name(i-1), r.name(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
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

// name is the path of the i-th file, 0 being the current one.
func (r *rotating) name(i int) string {
	if i == 0 {
		return r.path
	}
	return r.path + "." + strconv.Itoa(i)
}

// close implements output.
func (r *rotating) close() error {
	if r.f == nil {
		return nil
	}
	return r.f.Close()
}
