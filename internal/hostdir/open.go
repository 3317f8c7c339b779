//go:build linux

package hostdir

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// openFlags are those of open(2) that count. The guest's kernel truncates by a
// SETATTR, but for files that a CREATE finds.
const openFlags = unix.O_ACCMODE | unix.O_APPEND

// always are what every open has: no link is followed, and what has become a
// FIFO meanwhile is not waited for.
const always = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY

// openat opens one name in a directory.
func openat(d *dir, name string, flags int, mode uint32) (*os.File, error) {
	var fd int
	err := retry(func() (err error) { fd, err = unix.Openat(d.fd(), name, flags|always, mode); return err })
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openNode opens the file that n is, and nothing else.
func (s *files) openNode(n *node, flags int) (*os.File, *unix.Statx_t, error) {
	if n.is.kind != unix.S_IFREG {
		return nil, nil, unix.EISDIR
	}
	d, name, err := s.parentOf(n)
	if err != nil {
		return nil, nil, err
	}
	defer d.release()
	// Not opened unless it is the one: to open a device can have effects.
	if info, err := s.stat(d.fd(), name); err != nil || !s.same(n, info) {
		return nil, nil, unix.ESTALE
	}
	f, err := openat(d, name, flags, 0)
	if err != nil {
		if err == unix.ENOENT || err == unix.ELOOP { //nolint:errorlint // x/sys returns numbers as they are
			err = unix.ESTALE
		}
		return nil, nil, err
	}
	info, err := s.stat(int(f.Fd()), "")
	if err == nil && !s.same(n, info) {
		err = unix.ESTALE
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, err
	}
	s.mu.Lock()
	parent := n.parent
	s.mu.Unlock()
	s.shown(parent, name, info, true)
	return f, info, nil
}

func (s *files) openFile(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	flags := int(a.u32()) & openFlags
	n, err := s.node(r.node)
	if err == nil {
		err = a.err()
	}
	if err != nil {
		return nil, err
	}
	if s.readOnly && flags&unix.O_ACCMODE != unix.O_RDONLY {
		return nil, unix.EROFS
	}
	f, info, err := s.openNode(n, flags)
	if err != nil {
		return nil, err
	}
	if s.outdated(n, info) {
		_ = f.Close() // nothing was read
		return nil, unix.ESTALE
	}
	h, err := s.newHandle(n, f, s.quiet(flags))
	if err != nil {
		return nil, err
	}
	return put32(put64(out, h.id), s.openReply(n, info)|h.closeReply(), 0), nil
}

// version is the state of a file's content.
type version struct {
	inode, size       uint64
	modified, changed unix.StatxTimestamp
}

// settled is how old the last change of a file must be, so that a further one has another time.
const settled = 2 * time.Second

// openReply is how the guest's kernel deals with an open file.
func (s *files) openReply(n *node, info *unix.Statx_t) (reply uint32) {
	now := version{info.Ino, info.Size, info.Mtime, info.Ctime}
	s.mu.Lock()
	if n.read == now {
		reply |= openKeepCache
	}
	if s.now().Sub(time.Unix(info.Ctime.Sec, int64(info.Ctime.Nsec))) < settled {
		now = version{}
	}
	n.read = now
	s.mu.Unlock()
	return reply
}

// quiet spares the guest's kernel a message for each close of a file that is open one way. Databases, which rely on
// their locks to end with the first close (as POSIX has it), open files both ways.
func (s *files) quiet(flags int) bool { return flags&unix.O_ACCMODE != unix.O_RDWR && !s.readOnly }

func (h *handle) closeReply() uint32 {
	if h.quiet {
		return openNoFlush
	}
	return 0
}

// outdated reports whether the host has changed a file's size since the guest
// was shown it. An open drops cached content, but sendfile(2) and mmap(2) would
// go by the old size until cacheFor is over: only an ESTALE makes the kernel
// look the name up again. A file that changes all the time is opened at the
// second try.
func (s *files) outdated(n *node, info *unix.Statx_t) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.resent = !n.resent && n.size != info.Size
	return n.resent
}

func (s *files) opendir(r request, out []byte) ([]byte, error) {
	n, err := s.node(r.node)
	if err != nil {
		return nil, err
	}
	d, err := s.dir(n)
	if err != nil {
		return nil, err
	}
	defer d.release()
	f, err := openat(d, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	h, err := s.newHandle(n, f, false)
	if err != nil {
		return nil, err
	}
	return put32(put64(out, h.id), 0, 0), nil
}
