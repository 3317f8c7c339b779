//go:build linux

package fileops

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/msb-project/msb/agentd/agentpb"
)

// errNotRegular is the refusal of devices, FIFOs and sockets, whose reads and
// writes may never end.
var errNotRegular = errors.New("not a regular file")

// openRegular opens p without waiting for a FIFO's other end.
func openRegular(p string, flag int) (*os.File, error) {
	f, err := os.OpenFile(p, flag|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = &os.PathError{Op: "open", Path: p, Err: syscall.EISDIR}
	} else if err == nil && !st.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: p, Err: errNotRegular}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read calls send with the bytes of p from offset on, at most length of them;
// length 0 is no limit.
func Read(p string, offset, length int64, send func([]byte) error) error {
	if err := check("read", p); err != nil {
		return err
	}
	if offset < 0 || length < 0 {
		return &os.PathError{Op: "read", Path: p, Err: syscall.EINVAL}
	}
	f, err := openRegular(p, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if length == 0 {
		length = 1<<63 - 1 - offset
	}
	r := io.NewSectionReader(f, offset, length)
	buf := make([]byte, agentpb.FileChunkBytes)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := send(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// maxTemporary is how many names are tried for the file beside the one that is
// replaced.
const maxTemporary = 100

// Write stores what next returns until io.EOF. Any other error of next leaves
// the file as it was, but for what was appended.
func Write(w *agentpb.WriteStart, next func() ([]byte, error)) (*agentpb.FileInfo, error) {
	p := w.GetPath()
	if err := check("write", p); err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(p); err == nil {
		p = real // a link stays, its target is replaced
	}
	before, err := os.Lstat(p)
	switch {
	case err == nil && w.GetExclusive():
		return nil, &os.PathError{Op: "write", Path: p, Err: syscall.EEXIST}
	case err == nil && before.IsDir():
		return nil, &os.PathError{Op: "write", Path: p, Err: syscall.EISDIR}
	case err == nil && !before.Mode().IsRegular():
		return nil, &os.PathError{Op: "write", Path: p, Err: errNotRegular}
	case err != nil && !os.IsNotExist(err):
		return nil, err
	case err != nil:
		before = nil
	}
	if w.GetAppend() && before != nil {
		err = appendTo(p, next)
	} else {
		err = replace(p, w, before, next)
	}
	if err != nil {
		return nil, err
	}
	return Stat(p, false)
}

func appendTo(p string, next func() ([]byte, error)) error {
	f, err := openRegular(p, os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return err
	}
	return errors.Join(fill(f, next), f.Close())
}

func replace(p string, w *agentpb.WriteStart, before os.FileInfo, next func() ([]byte, error)) error {
	f, err := temporary(p)
	if err != nil {
		return err
	}
	err = errors.Join(fill(f, next), dress(f, w, before), f.Close())
	if err == nil && w.GetExclusive() {
		err = os.Link(f.Name(), p) // unlike a rename, it fails where a file appeared meanwhile
	} else if err == nil {
		return errors.Join(rename(f.Name(), p))
	}
	return errors.Join(err, os.Remove(f.Name()))
}

func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return errors.Join(err, os.Remove(from))
	}
	return nil
}

// temporary makes a file in the directory of p, so that a rename stays within
// one file system.
func temporary(p string) (*os.File, error) {
	for i := range maxTemporary {
		f, err := os.OpenFile(filepath.Join(filepath.Dir(p), fmt.Sprintf(".msb-write-%d", i)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if !os.IsExist(err) {
			return f, err
		}
	}
	return nil, &os.PathError{Op: "write", Path: p, Err: syscall.EBUSY}
}

// dress gives the new file owner and permissions before anyone sees it.
func dress(f *os.File, w *agentpb.WriteStart, before os.FileInfo) error {
	mode, uid, gid := agentpb.Permissions(w.GetMode()), os.Geteuid(), os.Getegid()
	if w.GetMode() == 0 {
		mode = 0o644
	}
	if before != nil {
		mode = before.Mode() & (os.ModePerm | os.ModeSetuid | os.ModeSetgid | os.ModeSticky)
		if sys, ok := before.Sys().(*syscall.Stat_t); ok {
			uid, gid = int(sys.Uid), int(sys.Gid)
		}
	}
	if o := w.GetOwner(); o != nil {
		uid, gid = int(o.GetUid()), int(o.GetGid())
	}
	if err := f.Chown(uid, gid); err != nil {
		return err
	}
	return f.Chmod(mode)
}

func fill(f *os.File, next func() ([]byte, error)) error {
	for {
		b, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := f.Write(b); err != nil {
			return err
		}
	}
}
