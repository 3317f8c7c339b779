//go:build linux

package hostdir

import (
	"golang.org/x/sys/unix"
)

func (s *tree) readlink(r request, out []byte) ([]byte, error) {
	n, err := s.node(r.node)
	if err != nil {
		return nil, err
	}
	if n.is.kind != unix.S_IFLNK {
		return nil, unix.EINVAL
	}
	d, name, err := s.parentOf(n)
	if err != nil {
		return nil, err
	}
	defer d.release()
	info, err := s.stat(d.fd(), name)
	if err != nil || !s.same(n, info) {
		return nil, unix.ESTALE
	}
	target := make([]byte, unix.PathMax)
	length, err := unix.Readlinkat(d.fd(), name, target)
	if err != nil {
		return nil, err
	}
	return append(out, target[:length]...), nil
}
