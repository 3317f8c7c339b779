//go:build linux

package hostdir

import (
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// handle is a file or directory that the guest has open. mu is held for reading
// while its descriptor is used, so that no other file has the number by then.
type handle struct {
	id   uint64
	node *node
	file *os.File
	mu   sync.RWMutex
	done bool // under mu: the descriptor is closed
	// quiet tells that the guest's kernel doesn't say when a process closes the file: its locks go with the handle.
	quiet bool
}

func (h *handle) fd() int { return int(h.file.Fd()) }

// newHandle takes over f.
func (s *files) newHandle(n *node, f *os.File) (*handle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.handles) >= s.maxHandles || s.nodes[n.id] != n {
		_ = f.Close() // nothing was done with it
		if s.nodes[n.id] != n {
			return nil, unix.ESTALE
		}
		return nil, unix.EMFILE
	}
	s.lastHandle++
	h := &handle{id: s.lastHandle, node: n, file: f}
	s.handles[h.id] = h
	n.handles = append(n.handles, h)
	return h, nil
}

// handle finds an open file of n; its mu is held for reading then.
func (s *files) handle(id uint64, n *node) (*handle, error) {
	s.mu.Lock()
	h := s.handles[id]
	s.mu.Unlock()
	if h == nil || h.node != n {
		return nil, unix.EBADF
	}
	h.mu.RLock()
	if h.done {
		h.mu.RUnlock()
		return nil, unix.EBADF
	}
	return h, nil
}

// handleOf is any open file of n, with its mu held for reading; nil for none.
func (s *files) handleOf(n *node) *handle {
	s.mu.Lock()
	all := slices.Clone(n.handles)
	s.mu.Unlock()
	for _, h := range all {
		h.mu.RLock()
		if !h.done {
			return h
		}
		h.mu.RUnlock()
	}
	return nil
}

func (s *files) release(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	fh := a.u64()
	s.mu.Lock()
	h := s.handles[fh]
	if h != nil && h.node.id == r.node {
		delete(s.handles, fh)
		h.node.handles = slices.DeleteFunc(h.node.handles, func(o *handle) bool { return o == h })
		s.drop(h.node)
	} else {
		h = nil
	}
	s.mu.Unlock()
	if h == nil {
		return nil, unix.EBADF
	}
	return out, h.close()
}

func (h *handle) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return nil
	}
	h.done = true
	return h.file.Close()
}

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
	h, err := s.newHandle(n, f)
	if err != nil {
		return nil, err
	}
	return put32(put64(out, h.id), s.openReply(n, h, info, flags), 0), nil
}

// version is the state of a file's content.
type version struct {
	inode, size       uint64
	modified, changed unix.StatxTimestamp
}

// settled is how old the last change of a file must be, so that a further one has another time.
const settled = 2 * time.Second

// openReply is how the guest's kernel deals with an open file.
func (s *files) openReply(n *node, h *handle, info *unix.Statx_t, flags int) (reply uint32) {
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
	return reply | s.closeReply(h, flags)
}

// closeReply spares the guest's kernel a message for each close of a file that is open one way. Databases, which rely on
// their locks to end with the first close (as POSIX has it), open files both ways.
func (s *files) closeReply(h *handle, flags int) uint32 {
	if flags&unix.O_ACCMODE == unix.O_RDWR || s.readOnly {
		return 0
	}
	h.quiet = true
	return openNoFlush
}

// outdated reports whether the guest opens a file that the host has changed
// since the guest was shown its size, as far as that goes: what is cached of the
// content, an open drops. The kernel looks the name up again for an
// ESTALE, and only then: without it, sendfile(2) and mmap(2) would go by the old
// size until cacheFor is over. A file that changes all the time is opened the
// second time.
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
	h, err := s.newHandle(n, f)
	if err != nil {
		return nil, err
	}
	return put32(put64(out, h.id), 0, 0), nil
}

func (s *files) read(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	fh, offset, size := a.u64(), a.u64(), a.u32()
	h, err := s.openOf(r, &a, fh)
	if err != nil {
		return nil, err
	}
	defer h.mu.RUnlock()
	if h.node.is.kind != unix.S_IFREG {
		return nil, unix.EISDIR
	}
	length := int(min(size, maxIO))
	out = append(out, make([]byte, length)...)
	n := 0
	for n < length {
		got, err := unix.Pread(h.fd(), out[replyBytes+n:], int64(offset)+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if got == 0 {
			break
		}
		n += got
	}
	return out[:replyBytes+n], nil
}

// openOf finds the open file that a request of its node is about.
func (s *files) openOf(r request, a *args, fh uint64) (*handle, error) {
	if err := a.err(); err != nil {
		return nil, err
	}
	n, err := s.node(r.node)
	if err != nil {
		return nil, err
	}
	return s.handle(fh, n)
}

func (s *files) lseek(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	fh, offset, whence := a.u64(), a.u64(), a.u32()
	h, err := s.openOf(r, &a, fh)
	if err != nil {
		return nil, err
	}
	defer h.mu.RUnlock()
	if whence != unix.SEEK_DATA && whence != unix.SEEK_HOLE || h.node.is.kind != unix.S_IFREG {
		return nil, unix.EINVAL
	}
	at, err := unix.Seek(h.fd(), int64(offset), int(whence)) // reads and writes have offsets of their own
	if err != nil {
		return nil, err
	}
	return put64(out, uint64(at)), nil
}

func (s *files) fsync(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	fh, flags := a.u64(), a.u32()
	h, err := s.openOf(r, &a, fh)
	if err != nil {
		return nil, err
	}
	defer h.mu.RUnlock()
	if flags&fsyncDatasync != 0 {
		return out, retry(func() error { return unix.Fdatasync(h.fd()) })
	}
	return out, retry(func() error { return unix.Fsync(h.fd()) })
}
