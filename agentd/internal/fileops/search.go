//go:build linux

package fileops

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Bounds of a search.
const (
	maxFound      = 256
	maxFoundBytes = 256 << 10 // of their paths
	searchBytes   = 1 << 20   // read at a time
)

// Search names the regular files below root that hold one of the texts, in the order of their paths, which begin with a
// slash. more says that there are others, or that something could not be read. No link is followed.
func Search(ctx context.Context, root *os.Root, texts [][]byte) (found []string, more bool, err error) {
	s := &search{root: root, texts: texts, buf: make([]byte, 0, searchBytes)}
	for _, t := range texts {
		s.longest = max(s.longest, len(t))
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			more = true // gone meanwhile, or damaged
			return nil  //nolint:nilerr // the other files are looked at
		}
		if !d.Type().IsRegular() {
			return nil
		}
		holds, err := s.holds(ctx, path)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		more = more || err != nil && !errors.Is(err, fs.ErrNotExist)
		if !holds {
			return nil
		}
		if s.size += len(path); len(found) == maxFound || s.size > maxFoundBytes {
			more = true
			return fs.SkipAll
		}
		found = append(found, "/"+path)
		return nil
	})
	return found, more, err
}

type search struct {
	root    *os.Root
	texts   [][]byte
	longest int
	size    int
	buf     []byte
}

// holds reads a file in pieces, each behind the end of the one before, and leaves holes out.
func (s *search) holds(ctx context.Context, path string) (bool, error) {
	f, err := s.root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may have become a pipe
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	// Or a link to a file, which os.Root follows whatever the flags say.
	if there, err := s.root.Lstat(path); err != nil || !os.SameFile(info, there) {
		return false, err
	}
	at := int64(0)
	for buf := s.buf[:0]; ; {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if data, err := f.Seek(at, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) {
			return false, nil // nothing is behind it
		} else if err != nil {
			return false, err
		} else if data != at {
			at, buf = data, buf[:0]
		}
		n, err := f.Read(buf[len(buf):cap(buf)])
		buf, at = buf[:len(buf)+n], at+int64(n)
		if slices.ContainsFunc(s.texts, func(t []byte) bool { return bytes.Contains(buf, t) }) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		keep := min(len(buf), s.longest-1)
		buf = append(buf[:0], buf[len(buf)-keep:]...)
	}
}
