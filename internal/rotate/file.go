package rotate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// File is the file that is being written. It is for one goroutine.
type File struct {
	Path string
	Max  int64 // bytes at which the file is full
	Keep int   // how many full files are kept
	// Opener opens the file at a path for appending, or makes it.
	Opener func(path string) (*os.File, error)
	// Closer closes what Opener opened; nil for no more than that.
	Closer func(*os.File) error

	*os.File       // nil while none is open
	Size     int64 // bytes in it
}

// Name is the path of the i-th file, 0 being the one that is written.
func Name(path string, i int) string {
	if i == 0 {
		return path
	}
	return path + "." + strconv.Itoa(i)
}

// Open opens the file. What is in it stays.
func (f *File) Open() error {
	file, err := f.Opener(f.Path)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.File, f.Size = file, info.Size()
	if !info.Mode().IsRegular() {
		f.Max = math.MaxInt64 // a rename would take /dev/null from everybody, and a pipe from its reader
	}
	return nil
}

// OpenNow opens the file at path for writing with flags, or makes it with mode 0600. It never waits: a pipe that nobody
// reads from is an error.
func OpenNow(path string, flags int) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Mode().Type() == fs.ModeNamedPipe {
		flags = flags&^os.O_RDWR | os.O_WRONLY // opened for reading too, a pipe swallows what nobody reads
	}
	f, err := os.OpenFile(path, flags|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%s is a pipe that nobody reads from, or a socket; start the pipe's reader first: %w", path, err)
	}
	return f, err
}

// Append writes all of b, or leaves the file as it was: half a piece would spoil what is written behind it once the disk
// has room again.
func (f *File) Append(b []byte) error {
	n, err := f.File.Write(b)
	if err == nil {
		f.Size += int64(n)
		return nil
	}
	end, pos := f.Seek(0, io.SeekCurrent)
	info, stat := f.Stat()
	// Another process may append to the same file: what stands behind ours is not cut off.
	if n > 0 && pos == nil && stat == nil && info.Mode().IsRegular() && info.Size() == end {
		err = errors.Join(err, f.Truncate(end-int64(n)))
	}
	return err
}

// Write appends whole pieces, and calls rotate where the file is full. next is the length of the first piece of its
// argument. A file takes one piece at least, however small Max is. n is how much was written.
func (f *File) Write(b []byte, next func([]byte) int, rotate func() error) (n int, err error) {
	for n < len(b) {
		fits := fitting(b[n:], next, f.Max-f.Size)
		if fits == 0 {
			if f.Size > 0 {
				if err := rotate(); err != nil {
					return n, err
				}
			}
			fits = max(fitting(b[n:], next, f.Max-f.Size), next(b[n:]))
		}
		if err := f.Append(b[n : n+fits]); err != nil {
			return n, err
		}
		n += fits
	}
	return n, nil
}

// fitting is the length of the pieces at the start of b that fit into room.
func fitting(b []byte, next func([]byte) int, room int64) int {
	if int64(len(b)) <= room {
		return len(b)
	}
	n := 0
	for {
		end := n + next(b[n:])
		if int64(end) > room {
			return n
		}
		n = end
	}
}

// SetAside gives every file the next number, and closes the open one. It stops at the first that can't be renamed, so
// that none but the oldest is written over.
func (f *File) SetAside() error {
	var err error
	for i := f.Keep; i > 0 && err == nil; i-- {
		if err = os.Rename(Name(f.Path, i-1), Name(f.Path, i)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, f.Close())
}

// Close closes the file. Open opens it again.
func (f *File) Close() error {
	if f.File == nil {
		return nil
	}
	file := f.File
	f.File = nil
	if f.Closer != nil {
		return f.Closer(file)
	}
	return file.Close()
}
