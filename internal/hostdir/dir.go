//go:build linux

package hostdir

import (
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxDirs is how many directories are kept open, so that the next name in
	// one of them costs no walk from the top.
	maxDirs = 128

	// cacheFor is how long a directory is used before its path is looked at
	// again, and how long the guest may believe names and attributes.
	cacheFor = time.Second
)

// dir is an open directory. It is closed when the last user lets go.
type dir struct {
	file    *os.File
	users   atomic.Int32
	expires time.Time
	used    uint64 // when, in Server.uses
}

func (d *dir) fd() int { return int(d.file.Fd()) }

func (d *dir) release() {
	if d.users.Add(-1) == 0 {
		_ = d.file.Close() // it was read only
	}
}

// dir opens the directory that n is. The caller releases it.
func (s *tree) dir(n *node) (*dir, error) {
	s.mu.Lock()
	if d := s.dirs[n]; d != nil && (n.parent == nil || s.now().Before(d.expires)) {
		d.users.Add(1)
		s.uses++
		d.used = s.uses
		s.mu.Unlock()
		return d, nil
	}
	path, err := n.path()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if n.is.kind != unix.S_IFDIR {
		return nil, unix.ENOTDIR
	}
	f, err := s.open(path)
	if err != nil {
		if number(err) == unix.EACCES || number(err) == unix.EMFILE || number(err) == unix.ENFILE {
			return nil, err
		}
		return nil, unix.ESTALE
	}
	d := &dir{file: f, expires: s.now().Add(cacheFor)}
	d.users.Store(1)
	info, err := s.stat(d.fd(), "")
	if err == nil && s.identify && !s.same(n, info) {
		err = unix.ESTALE
	}
	if err != nil {
		d.release()
		return nil, err
	}
	s.keep(n, d)
	return d, nil
}

// keep puts a directory among those that stay open, in the place of the one
// that was not used for longest.
func (s *tree) keep(n *node, d *dir) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.nodes[n.id] != n {
		return
	}
	s.retire(n)
	if len(s.dirs) >= s.maxDirs {
		var oldest *node
		for k, o := range s.dirs {
			if k.parent != nil && (oldest == nil || o.used < s.dirs[oldest].used) {
				oldest = k
			}
		}
		s.retire(oldest)
	}
	d.users.Add(1)
	s.uses++
	d.used = s.uses
	s.dirs[n] = d
}

// retire closes the directory that is kept for n, if there is one.
func (s *tree) retire(n *node) {
	if d := s.dirs[n]; d != nil {
		delete(s.dirs, n)
		d.release()
	}
}

// parentOf opens the directory in which n was last seen. The caller releases it.
func (s *tree) parentOf(n *node) (d *dir, name string, err error) {
	s.mu.Lock()
	parent, name := n.parent, n.name
	s.mu.Unlock()
	if parent == nil {
		return nil, "", unix.EBUSY // the top has no name
	}
	d, err = s.dir(parent)
	return d, name, err
}

// number is the kernel's number of an error.
func number(err error) unix.Errno {
	for err != nil {
		if e, ok := err.(unix.Errno); ok { //nolint:errorlint // this is what errors.As does, without its reflection
			return e
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			break
		}
		err = u.Unwrap()
	}
	return unix.EIO
}
