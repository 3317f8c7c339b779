package capture

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrBusy says that another writer has the file.
var ErrBusy = errors.New("another capture is being written to it; name another file")

// recordingPrefix begins the comment in a file's head that all parts of one recording share.
const recordingPrefix = "recording "

// openLocked opens the file at path, or makes it, and locks it for as long as it is open. What is in it stays.
func openLocked(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		// File systems without locks are no reason to capture nothing.
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, ErrBusy), f.Close())
		}
		ours, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if there, err := os.Stat(path); err == nil && os.SameFile(ours, there) {
			return f, nil
		}
		_ = unlockAndClose(f) // rotated away between open and lock: it is another's full part
	}
}

// unlockAndClose lets go of the lock by itself: a child between fork and exec has the file open as well.
func unlockAndClose(f *os.File) error {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // its only error is that there are no locks
	return f.Close()
}

// Check says whether a capture could be written to path, and changes nothing there but that it makes an empty file
// where there is none.
func Check(path string) error {
	f, err := openRegular(path)
	if err == nil {
		err = unlockAndClose(f)
	}
	if err != nil {
		return fmt.Errorf("the capture can't be made: %w", err)
	}
	return nil
}

func openRegular(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // opening a pipe would wait for its reader
		return nil, fmt.Errorf("%s is no regular file, which rotation needs; name a file", path)
	}
	return openLocked(path)
}

// worthKeeping reports whether a file has what a part is kept for, packets or keys. What can't be read may have.
func worthKeeping(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err != nil
	}
	reader, err := NewReader(io.NewSectionReader(f, 0, info.Size()))
	if err != nil {
		return !errors.Is(err, io.EOF)
	}
	for {
		rec, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			return reader.Lost() > 0
		case err != nil, rec.Kind == PacketRecord, rec.Kind == KeysRecord:
			return true
		}
	}
}

// Parts lists the files of the recording whose youngest part is path, the oldest first: path.2, path.1, path. What an
// earlier recording left under such a name is not among them.
func Parts(path string) []string {
	own, ok := recordingOf(path)
	names, err := os.ReadDir(filepath.Dir(path))
	if err != nil || !ok {
		return []string{path}
	}
	type part struct {
		path string
		n    int
	}
	var parts []part
	for _, e := range names {
		digits, found := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		n, err := strconv.Atoi(digits)
		if !found || err != nil || n < 1 || strconv.Itoa(n) != digits {
			continue
		}
		name := path + "." + digits
		if of, ok := recordingOf(name); ok && of == own {
			parts = append(parts, part{name, n})
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(b.n, a.n) })
	paths := make([]string, 0, len(parts)+1)
	for _, p := range parts {
		paths = append(paths, p.path)
	}
	return append(paths, path)
}

// recordingOf is the recording of a file, "" for one that names none; ok is false for what is no readable capture.
func recordingOf(path string) (recording string, ok bool) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer func() { _ = f.Close() }()
	reader, err := NewReader(f)
	if err != nil {
		return "", false
	}
	_, err = reader.Next()
	return reader.Recording(), err == nil || errors.Is(err, io.EOF) || reader.Offset() > 0
}
