//go:build linux

package hostdir

import (
	"golang.org/x/sys/unix"
)

const statMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME | unix.STATX_MNT_ID

// stat looks at name in an open directory, or at the open file itself for "".
// No link is followed.
func (s *tree) stat(fd int, name string) (*unix.Statx_t, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var info unix.Statx_t
	if err := retry(func() error { return unix.Statx(fd, name, flags, statMask, &info) }); err != nil {
		return nil, err
	}
	return &info, nil
}

// retry repeats a call that a signal of the runtime's interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR { //nolint:errorlint // x/sys returns numbers as they are
			return err
		}
	}
}

// attributes looks at n: by its name, or where that is gone, by a handle that
// the guest has open.
func (s *Server) attributes(n *node) (*unix.Statx_t, error) {
	if n == s.first {
		d, err := s.dir(n)
		if err != nil {
			return nil, err
		}
		defer d.release()
		return s.stat(d.fd(), "")
	}
	d, name, err := s.parentOf(n)
	if err == nil {
		defer d.release()
		var info *unix.Statx_t
		if info, err = s.stat(d.fd(), name); err == nil && s.same(n, info) {
			return info, nil
		}
	}
	if h := s.handleOf(n); h != nil {
		defer h.mu.RUnlock()
		return s.stat(h.fd(), "")
	}
	if err == nil || number(err) == unix.ENOENT {
		err = unix.ESTALE
	}
	return nil, err
}

// putAttr appends a fuse_attr, and remembers the size that the guest was shown.
func (s *tree) putAttr(b []byte, n *node, info *unix.Statx_t) []byte {
	s.mu.Lock()
	n.size = info.Size
	own := s.ownerOf(n.is)
	s.mu.Unlock()
	mode := uint32(info.Mode)
	if s.real {
		own = owner{info.Uid, info.Gid}
	} else {
		mode &^= unix.S_ISUID | unix.S_ISGID
	}
	b = put64(b, info.Ino, info.Size, info.Blocks, uint64(info.Atime.Sec), uint64(info.Mtime.Sec), uint64(info.Ctime.Sec))
	b = put32(b, info.Atime.Nsec, info.Mtime.Nsec, info.Ctime.Nsec, mode, info.Nlink)
	return put32(b, own.uid, own.gid, 0, info.Blksize, 0)
}

// putEntry appends a fuse_entry_out.
func (s *tree) putEntry(b []byte, n *node, info *unix.Statx_t) []byte {
	b = put64(b, n.id, 0, uint64(cacheFor.Seconds()), uint64(cacheFor.Seconds()))
	return s.putAttr(put32(b, 0, 0), n, info)
}

// putMissing appends a fuse_entry_out of a name that isn't there, which the guest may cache for as long as one that
// is there.
func putMissing(b []byte) []byte {
	b = put64(b, 0, 0, uint64(cacheFor.Seconds()))
	return append(b, make([]byte, entryBytes-24)...)
}

// putAttrOut appends a fuse_attr_out.
func (s *tree) putAttrOut(b []byte, n *node, info *unix.Statx_t) []byte {
	return s.putAttr(put32(put64(b, uint64(cacheFor.Seconds())), 0, 0), n, info)
}

// shown reports a file that the guest sees to Options.Base.
func (s *tree) shown(parent *node, name string, info *unix.Statx_t, opened bool) {
	if s.base == nil || info.Mode&unix.S_IFMT == unix.S_IFDIR {
		return
	}
	whole, err := s.wholePath(parent, name)
	if err != nil {
		return // a file without a record is never written over
	}
	s.base(whole, File{
		Mode: uint32(info.Mode), Inode: info.Ino, Size: info.Size,
		Modified: info.Mtime.Sec*1e9 + int64(info.Mtime.Nsec), Changed: info.Ctime.Sec*1e9 + int64(info.Ctime.Nsec),
	}, opened)
}

func (s *Server) getattr(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	flags, _, fh := a.u32(), a.u32(), a.u64()
	n, err := s.node(r.node)
	if err == nil {
		err = a.err()
	}
	if err != nil {
		return nil, err
	}
	if flags&getattrFH != 0 {
		if h, err := s.handle(fh, n); err == nil {
			defer h.mu.RUnlock()
			info, err := s.stat(h.fd(), "")
			if err != nil {
				return nil, err
			}
			return s.putAttrOut(out, n, info), nil
		}
	}
	info, err := s.attributes(n)
	if err != nil {
		return nil, err
	}
	return s.putAttrOut(out, n, info), nil
}

func (s *tree) statfs(out []byte) ([]byte, error) {
	d, err := s.dir(s.first)
	if err != nil {
		return nil, err
	}
	defer d.release()
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(d.fd(), &st) }); err != nil {
		return nil, err
	}
	out = put64(out, st.Blocks, st.Bfree, st.Bavail, st.Files, st.Ffree)
	out = put32(out, uint32(st.Bsize), uint32(st.Namelen), uint32(st.Frsize))
	return append(out, make([]byte, 4+6*4)...), nil
}
