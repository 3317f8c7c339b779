//go:build linux

package hostdir

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// maxOwners bounds how many files have an owner that the guest gave them.
const maxOwners = 1 << 16

// chown gives the file to another, with Options.HostOwners. Without it, it remembers an owner for as long as the server
// lives, and the host's files keep theirs: they are the user's.
func (s *Server) chown(n *node, v setting) error {
	if !s.real {
		s.rememberOwner(n.is, v)
		return nil
	}
	own := [2]int{-1, -1}
	if v.valid&setUID != 0 {
		own[0] = int(v.owner.uid)
	}
	if v.valid&setGID != 0 {
		own[1] = int(v.owner.gid)
	}
	f, err := s.pin(n)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written by it
	return unix.Fchownat(int(f.Fd()), "", own[0], own[1], unix.AT_EMPTY_PATH)
}

// give makes what was made in d for a user of the guest that user's own, with Options.HostOwners, and its mode what the
// guest's process asked for, whatever this process's umask is. In a directory that hands its group on, the group stays.
func (s *tree) give(d *dir, made *os.File, to owner, mode uint32) error {
	up, err := s.stat(d.fd(), "")
	if err != nil {
		return err
	}
	info, err := s.stat(int(made.Fd()), "")
	if err != nil {
		return err
	}
	gid := int(to.gid)
	if up.Mode&unix.S_ISGID != 0 {
		gid = -1
	}
	if err := unix.Fchownat(int(made.Fd()), "", int(to.uid), gid, unix.AT_EMPTY_PATH); err != nil || info.Mode&unix.S_IFMT == unix.S_IFLNK {
		return err
	}
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", made.Fd()), mode&permissions|uint32(info.Mode&unix.S_ISGID))
}

// giveName is give for all but regular files. Another process that writes in d may have replaced it: a regular file or
// a directory that holds something keeps its owner.
func (s *tree) giveName(d *dir, name string, to owner, mode uint32) error {
	if !s.real {
		return nil
	}
	f, err := openat(d, name, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written by it
	info, err := s.stat(int(f.Fd()), "")
	if err != nil {
		return err
	}
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFLNK, unix.S_IFSOCK, unix.S_IFIFO:
	case unix.S_IFDIR:
		if left, err := os.ReadDir(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err != nil || len(left) > 0 {
			return unix.ESTALE
		}
	default:
		return unix.ESTALE
	}
	return s.give(d, f, to, mode)
}

func (s *tree) rememberOwner(is identity, v setting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.ownerOf(is)
	if v.valid&setUID != 0 {
		own.uid = v.owner.uid
	}
	if v.valid&setGID != 0 {
		own.gid = v.owner.gid
	}
	if own == s.owner {
		delete(s.owners, is)
	} else if _, have := s.owners[is]; have || len(s.owners) < maxOwners {
		s.owners[is] = own
	}
}

// ownerOf is whom the guest sees as a file's owner. The caller holds mu.
func (s *tree) ownerOf(is identity) owner {
	if own, have := s.owners[is]; have {
		return own
	}
	return s.owner
}
