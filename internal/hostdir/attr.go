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

func identityOf(info *unix.Statx_t) identity {
	is := identity{device: unix.Mkdev(info.Dev_major, info.Dev_minor), inode: info.Ino, kind: info.Mode & unix.S_IFMT}
	if info.Mask&unix.STATX_BTIME != 0 {
		is.born = info.Btime.Sec*1e9 + int64(info.Btime.Nsec)
	}
	return is
}

// servable refuses what is no plain file, directory or link of the directory's
// own file system.
func (s *tree) servable(info *unix.Statx_t) error {
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK:
	default:
		return unix.ENOENT // sockets, FIFOs and devices are as if they weren't there
	}
	if !s.sameMount(info) {
		return unix.EACCES
	}
	return nil
}

func (s *tree) sameMount(info *unix.Statx_t) bool {
	if info.Mask&s.top.Mask&unix.STATX_MNT_ID != 0 && info.Mnt_id != s.top.Mnt_id {
		return false
	}
	return info.Dev_major == s.top.Dev_major && info.Dev_minor == s.top.Dev_minor
}

// room opens the directory parent for a name in it that the guest may use.
func (s *tree) room(parent *node, name string) (*dir, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if s.hidden(parent, name) {
		return nil, unix.ENOENT
	}
	return s.dir(parent)
}

// checkName lets through what is one element of a path.
func checkName(name string) error {
	if len(name) > unix.NAME_MAX {
		return unix.ENAMETOOLONG
	}
	if name == "" || name == "." || name == ".." {
		return unix.EINVAL
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] == 0 {
			return unix.EINVAL
		}
	}
	return nil
}

// attributes looks at n: by its name, or where that is gone, by a handle that
// the guest has open.
func (s *Server) attributes(n *node) (*unix.Statx_t, error) {
	if n.parent == nil {
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
	b = put64(b, info.Ino, info.Size, info.Blocks, uint64(info.Atime.Sec), uint64(info.Mtime.Sec), uint64(info.Ctime.Sec))
	b = put32(b, info.Atime.Nsec, info.Mtime.Nsec, info.Ctime.Nsec, uint32(info.Mode)&^(unix.S_ISUID|unix.S_ISGID), info.Nlink)
	return put32(b, own.uid, own.gid, 0, info.Blksize, 0)
}

// putEntry appends a fuse_entry_out.
func (s *tree) putEntry(b []byte, n *node, info *unix.Statx_t) []byte {
	b = put64(b, n.id, 0, uint64(cacheFor.Seconds()), uint64(cacheFor.Seconds()))
	return s.putAttr(put32(b, 0, 0), n, info)
}

// putMissing appends a fuse_entry_out of a name that isn't there, which the guest may believe as long as another.
func putMissing(b []byte) []byte {
	b = put64(b, 0, 0, uint64(cacheFor.Seconds()))
	return append(b, make([]byte, entryBytes-24)...)
}

// putAttrOut appends a fuse_attr_out.
func (s *tree) putAttrOut(b []byte, n *node, info *unix.Statx_t) []byte {
	return s.putAttr(put32(put64(b, uint64(cacheFor.Seconds())), 0, 0), n, info)
}

// entry looks a name up once more and appends what the guest's kernel then holds.
func (s *tree) entry(b []byte, parent *node, d *dir, name string) ([]byte, error) {
	info, err := s.stat(d.fd(), name)
	if err == nil {
		err = s.servable(info)
	}
	if err != nil {
		return nil, err
	}
	n, err := s.remember(parent, name, identityOf(info))
	if err != nil {
		return nil, err
	}
	s.shown(parent, name, info, false)
	return s.putEntry(b, n, info), nil
}

// shown tells of a file that the guest sees.
func (s *tree) shown(parent *node, name string, info *unix.Statx_t, opened bool) {
	if s.base == nil || info.Mode&unix.S_IFMT == unix.S_IFDIR {
		return
	}
	s.base(s.wholePath(parent, name), File{
		Mode: uint32(info.Mode), Inode: info.Ino, Size: info.Size,
		Modified: info.Mtime.Sec*1e9 + int64(info.Mtime.Nsec), Changed: info.Ctime.Sec*1e9 + int64(info.Ctime.Nsec),
	}, opened)
}

func (s *Server) lookup(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	name := a.text()
	parent, err := s.node(r.node)
	if err == nil {
		err = a.err()
	}
	if err != nil {
		return nil, err
	}
	if s.pollable(r.node, name) {
		return s.poll(r, out)
	}
	d, err := s.room(parent, name)
	if err == nil {
		defer d.release()
		var found []byte
		if found, err = s.entry(out, parent, d, name); err == nil {
			return found, nil
		}
	}
	if err == unix.ENOENT { //nolint:errorlint // both return numbers as they are
		return putMissing(out), nil
	}
	return nil, err
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
