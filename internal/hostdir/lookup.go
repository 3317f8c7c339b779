//go:build linux

package hostdir

import (
	"golang.org/x/sys/unix"
)

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
	d, err := s.openParent(parent, name)
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

// servable refuses what is no plain file, directory or link of the directory's
// own file system.
func (s *tree) servable(info *unix.Statx_t) error {
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK:
	case unix.S_IFSOCK, unix.S_IFIFO: // names by which programs of the guest meet in its own kernel
		if !s.real {
			return unix.ENOENT
		}
	default:
		return unix.ENOENT // devices are as if they weren't there
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

// openParent opens the directory parent for a name in it that the guest may use.
func (s *tree) openParent(parent *node, name string) (*dir, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if hidden, err := s.hidden(parent, name); err != nil {
		return nil, err
	} else if hidden {
		return nil, unix.ENOENT
	}
	return s.dir(parent)
}

func identityOf(info *unix.Statx_t) identity {
	is := identity{device: unix.Mkdev(info.Dev_major, info.Dev_minor), inode: info.Ino, kind: info.Mode & unix.S_IFMT}
	if info.Mask&unix.STATX_BTIME != 0 {
		is.born = info.Btime.Sec*1e9 + int64(info.Btime.Nsec)
	}
	return is
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
