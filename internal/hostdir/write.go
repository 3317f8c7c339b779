//go:build linux

package hostdir

import (
	"golang.org/x/sys/unix"
)

func (s *Server) write(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	fh, offset, size := a.u64(), a.u64(), a.u32()
	a.skip(20)
	data := a.rest
	if uint64(size) != uint64(len(data)) {
		return nil, unix.EINVAL
	}
	h, err := s.openOf(r, &a, fh)
	if err != nil {
		return nil, err
	}
	defer h.mu.RUnlock()
	n := 0
	for n < len(data) {
		wrote, err := unix.Pwrite(h.fd(), data[n:], int64(offset)+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil && n == 0 {
			return nil, err
		}
		if err != nil || wrote == 0 {
			break
		}
		n += wrote
	}
	s.grown(h.node, offset+uint64(n))
	return put32(out, uint32(n), 0), nil
}

func (s *Server) fallocate(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	fh, offset, length, mode := a.u64(), a.u64(), a.u64(), a.u32()
	h, err := s.openOf(r, &a, fh)
	if err != nil {
		return nil, err
	}
	defer h.mu.RUnlock()
	if err := retry(func() error { return unix.Fallocate(h.fd(), mode, int64(offset), int64(length)) }); err != nil {
		return nil, err
	}
	if mode&unix.FALLOC_FL_KEEP_SIZE == 0 {
		s.grown(h.node, offset+length)
	}
	return out, nil
}

// grown records the size that the guest's kernel assumes after a write.
func (s *files) grown(n *node, size uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.size = max(n.size, size)
}
