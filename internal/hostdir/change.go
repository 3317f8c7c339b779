//go:build linux

package hostdir

import (
	"os"

	"golang.org/x/sys/unix"
)

// permissions are what the guest may set of a mode. setuid and setgid would
// give programs of the guest rights of the host's user.
const permissions = 0o777 | unix.S_ISVTX

// readOnlyError is the reply to an operation that a read-only directory
// refuses.
func readOnlyError(op opcode) error {
	switch op {
	case opSetattr, opSymlink, opMknod, opMkdir, opUnlink, opRmdir, opRename, opRename2, opLink, opCreate, opWrite, opFallocate:
		return unix.EROFS
	default:
		return unix.ENOSYS
	}
}

// change answers requests that change the host's files.
func (s *Server) change(r request, out []byte) ([]byte, error) {
	switch r.op {
	case opSetattr:
		return s.setattr(r, out)
	case opWrite:
		return s.write(r, out)
	case opFallocate:
		return s.fallocate(r, out)
	case opCreate, opMknod:
		return s.create(r, out)
	case opMkdir:
		return s.mkdir(r, out)
	case opSymlink:
		return s.symlink(r, out)
	case opLink:
		return s.link(r, out)
	case opUnlink, opRmdir:
		return s.unlink(r, out)
	case opRename, opRename2:
		return s.rename(r, out)
	case opGetlk, opSetlk:
		return s.locks.now(s, r, out)
	case opSetlkw:
		return nil, unix.ENOLCK // as many wait as may
	default:
		return nil, unix.ENOSYS
	}
}

// create makes a file and opens it (CREATE), or makes it only (MKNOD).
func (s *Server) create(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	flags, mode := int(a.u32()), a.u32()
	a.skip(8)
	if r.op == opMknod {
		mode = uint32(flags)
		switch kind := mode & unix.S_IFMT; {
		case s.real && (kind == unix.S_IFSOCK || kind == unix.S_IFIFO):
			return s.makeSpecial(r, &a, kind|mode&permissions, out)
		case kind != unix.S_IFREG && kind != 0:
			return nil, unix.EPERM // devices, and what only containers may make
		}
		flags = unix.O_RDONLY | unix.O_EXCL
	}
	parent, name, d, err := s.target(r, &a)
	if err != nil {
		return nil, err
	}
	defer d.release()
	if flags&unix.O_EXCL == 0 { // what is there must be a file that may be opened
		if info, err := s.stat(d.fd(), name); err == nil && (s.servable(info) != nil || info.Mode&unix.S_IFMT != unix.S_IFREG) {
			return nil, unix.EEXIST
		}
	}
	f, made, err := s.make(d, name, flags, mode&permissions)
	if err != nil {
		return nil, err
	}
	if made && s.real {
		if err := s.give(d, f, r.asker, mode); err != nil {
			_, _ = f.Close(), unix.Unlinkat(d.fd(), name, 0) // nobody could use it
			return nil, err
		}
	}
	info, err := s.stat(int(f.Fd()), "")
	if err == nil {
		err = s.servable(info)
	}
	var n *node
	if err == nil {
		n, err = s.remember(parent, name, identityOf(info))
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	out = s.putEntry(out, n, info)
	if r.op == opMknod {
		return out, f.Close()
	}
	h, err := s.newHandle(n, f, s.quiet(flags))
	if err != nil {
		s.forget(n.id, 1)
		return nil, err
	}
	return put32(put64(out, h.id), h.closeReply(), 0), nil
}

// makeSpecial makes a socket or a FIFO, which this process never opens.
func (s *Server) makeSpecial(r request, a *args, mode uint32, out []byte) ([]byte, error) {
	parent, name, d, err := s.target(r, a)
	if err != nil {
		return nil, err
	}
	defer d.release()
	if err := unix.Mknodat(d.fd(), name, mode, 0); err != nil {
		return nil, err
	}
	if err := s.giveName(d, name, r.asker, mode); err != nil {
		return nil, err
	}
	return s.entry(out, parent, d, name)
}

// make opens a file and makes it where it is missing. Only give needs to know whether it did.
func (s *tree) make(d *dir, name string, flags int, mode uint32) (f *os.File, made bool, err error) {
	flags &= openFlags | unix.O_EXCL | unix.O_TRUNC
	if s.real && flags&unix.O_EXCL == 0 {
		f, err = openat(d, name, flags|unix.O_CREAT|unix.O_EXCL, mode)
		if err != unix.EEXIST { //nolint:errorlint // x/sys returns numbers as they are
			return f, true, err
		}
		f, err = openat(d, name, flags, mode)
		return f, false, err
	}
	f, err = openat(d, name, flags|unix.O_CREAT, mode)
	return f, true, err
}

// target takes the name that r makes or removes in the directory of its node.
// The caller releases the directory.
func (s *Server) target(r request, a *args) (*node, string, *dir, error) {
	name := a.text()
	if err := a.err(); err != nil {
		return nil, "", nil, err
	}
	parent, err := s.node(r.node)
	if err != nil {
		return nil, "", nil, err
	}
	d, err := s.openParentToChange(parent, name)
	return parent, name, d, err
}

// openParentToChange is openParent for a name that the guest creates or removes. A hidden name is refused: the guest
// may not create one either.
func (s *tree) openParentToChange(parent *node, name string) (*dir, error) {
	if hidden, err := s.hidden(parent, name); err == nil && hidden {
		return nil, unix.EACCES
	}
	return s.openParent(parent, name)
}

func (s *Server) mkdir(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	mode := a.u32()
	a.skip(4)
	parent, name, d, err := s.target(r, &a)
	if err != nil {
		return nil, err
	}
	defer d.release()
	if err := unix.Mkdirat(d.fd(), name, mode&permissions); err != nil {
		return nil, err
	}
	if err := s.giveName(d, name, r.asker, mode); err != nil {
		return nil, err
	}
	return s.entry(out, parent, d, name)
}

func (s *Server) symlink(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	parent, name, d, err := s.target(r, &a)
	if err != nil {
		return nil, err
	}
	defer d.release()
	to := a.text()
	if err := a.err(); err != nil {
		return nil, err
	}
	if err := unix.Symlinkat(to, d.fd(), name); err != nil {
		return nil, err
	}
	if err := s.giveName(d, name, r.asker, 0); err != nil {
		return nil, err
	}
	return s.entry(out, parent, d, name)
}

func (s *Server) link(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	from, err := s.node(a.u64())
	if err != nil {
		return nil, err
	}
	parent, name, d, err := s.target(r, &a)
	if err != nil {
		return nil, err
	}
	defer d.release()
	old, oldName, err := s.parentOf(from)
	if err != nil {
		return nil, err
	}
	defer old.release()
	info, err := s.stat(old.fd(), oldName)
	if err != nil || identityOf(info) != from.is {
		return nil, unix.ESTALE
	}
	if err := unix.Linkat(old.fd(), oldName, d.fd(), name, 0); err != nil {
		return nil, err
	}
	return s.entry(out, parent, d, name)
}

func (s *Server) unlink(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	_, name, d, err := s.target(r, &a)
	if err != nil {
		return nil, err
	}
	defer d.release()
	info, err := s.stat(d.fd(), name)
	if err == nil {
		err = s.servable(info)
	}
	if err != nil {
		return nil, err
	}
	flags := 0
	if r.op == opRmdir {
		flags = unix.AT_REMOVEDIR
	}
	if err := unix.Unlinkat(d.fd(), name, flags); err != nil {
		return nil, err
	}
	if info.Nlink <= 1 || r.op == opRmdir {
		s.removed(identityOf(info))
	}
	return out, nil
}

func (s *Server) rename(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	to, flags := a.u64(), uint32(0)
	if r.op == opRename2 {
		flags, _ = a.u32(), a.u32()
	}
	if flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 {
		return nil, unix.EINVAL
	}
	parent, name, d, err := s.target(r, &a)
	if err != nil {
		return nil, err
	}
	defer d.release()
	newName := a.text()
	if err := a.err(); err != nil {
		return nil, err
	}
	newParent, err := s.node(to)
	if err != nil {
		return nil, err
	}
	newDir, err := s.openParentToChange(newParent, newName)
	if err != nil {
		return nil, err
	}
	defer newDir.release()
	moved, err := s.stat(d.fd(), name)
	if err == nil {
		err = s.servable(moved)
	}
	if err != nil {
		return nil, err
	}
	if s.leadsToHidden(parent, name) || s.leadsToHidden(newParent, newName) {
		return nil, unix.EACCES
	}
	replaced, errThere := s.stat(newDir.fd(), newName)
	if errThere == nil && s.servable(replaced) != nil {
		return nil, unix.EACCES
	}
	if err := unix.Renameat2(d.fd(), name, newDir.fd(), newName, uint(flags)); err != nil {
		return nil, err
	}
	s.movedTo(identityOf(moved), newParent, newName)
	switch {
	case errThere != nil || identityOf(replaced) == identityOf(moved):
	case flags&unix.RENAME_EXCHANGE != 0:
		s.movedTo(identityOf(replaced), parent, name)
	case replaced.Nlink <= 1 || replaced.Mode&unix.S_IFMT == unix.S_IFDIR:
		s.removed(identityOf(replaced))
	}
	return out, nil
}

// movedTo notes the new name of a file that the guest may know.
func (s *tree) movedTo(is identity, parent *node, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.known[is]; n != nil {
		_ = s.put(n, parent, name) // what can't be placed is looked up again
	}
}
