//go:build linux

package hostdir

import (
	"golang.org/x/sys/unix"
)

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
