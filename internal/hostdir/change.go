//go:build linux

package hostdir

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// maxOwners bounds how many files have an owner that the guest gave them.
const maxOwners = 1 << 16

// permissions are what the guest may set of a mode. setuid and setgid would
// give programs of the guest rights of the host's user.
const permissions = 0o777 | unix.S_ISVTX

// readOnlyError is the reply to what a directory that is read-only doesn't do.
func readOnlyError(op opcode) error {
	switch op {
	case opSetattr, opSymlink, opMknod, opMkdir, opUnlink, opRmdir, opRename, opRename2, opLink, opCreate, opWrite, opFallocate:
		return unix.EROFS
	default:
		return unix.ENOSYS
	}
}

// change does what changes the host's files.
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

// grown notes what the guest's kernel takes the size for after a write.
func (s *files) grown(n *node, size uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.size = max(n.size, size)
}

// setting is what a SETATTR asks for.
type setting struct {
	valid        uint32
	fh, size     uint64
	atime, mtime unix.Timespec
	mode         uint32
	owner        owner
}

func parseSetting(body []byte) (setting, error) {
	a := args{rest: body}
	var v setting
	v.valid, _ = a.u32(), a.u32()
	v.fh, v.size = a.u64(), a.u64()
	a.skip(8) // the lock's owner
	v.atime.Sec, v.mtime.Sec = int64(a.u64()), int64(a.u64())
	a.skip(8) // ctime is the host's
	v.atime.Nsec, v.mtime.Nsec = int64(a.u32()), int64(a.u32())
	a.skip(4)
	v.mode = a.u32()
	a.skip(4)
	v.owner = owner{a.u32(), a.u32()}
	return v, a.err()
}

func (s *Server) setattr(r request, out []byte) ([]byte, error) {
	v, err := parseSetting(r.body)
	if err != nil {
		return nil, err
	}
	n, err := s.node(r.node)
	if err != nil {
		return nil, err
	}
	if v.valid&setSize != 0 {
		if err := s.truncate(n, v); err != nil {
			return nil, err
		}
	}
	if v.valid&setMode != 0 && n.is.kind != unix.S_IFLNK || v.valid&(setAtime|setMtime|setAtimeNow|setMtimeNow) != 0 {
		if err := s.setInode(n, v); err != nil {
			return nil, err
		}
	}
	if v.valid&(setUID|setGID) != 0 {
		s.chown(n.is, v)
	}
	info, err := s.attributes(n)
	if err != nil {
		return nil, err
	}
	return s.putAttrOut(out, n, info), nil
}

func (s *Server) truncate(n *node, v setting) error {
	if v.valid&setFH != 0 {
		if h, err := s.handle(v.fh, n); err == nil {
			defer h.mu.RUnlock()
			return h.file.Truncate(int64(v.size))
		}
	}
	f, _, err := s.openNode(n, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the truncation was answered
	return f.Truncate(int64(v.size))
}

// setInode sets mode and times through a descriptor of the very file: by name,
// chmod(2) follows links.
func (s *Server) setInode(n *node, v setting) error {
	f, err := s.pin(n)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if v.valid&setMode != 0 && n.is.kind != unix.S_IFLNK {
		if err := unix.Chmod(path, v.mode&permissions); err != nil {
			return err
		}
	}
	if v.valid&(setAtime|setMtime|setAtimeNow|setMtimeNow) == 0 {
		return nil
	}
	times := []unix.Timespec{v.atime, v.mtime}
	for i, bit := range []uint32{setAtime, setMtime} {
		switch {
		case v.valid&[]uint32{setAtimeNow, setMtimeNow}[i] != 0:
			times[i] = unix.Timespec{Nsec: unix.UTIME_NOW}
		case v.valid&bit == 0:
			times[i] = unix.Timespec{Nsec: unix.UTIME_OMIT}
		}
	}
	// The path leads to the open file itself, which may be a link.
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, times, 0)
}

// pin opens n without its content: a file that may not be read, a link.
func (s *files) pin(n *node) (*os.File, error) {
	if n.parent == nil {
		d, err := s.dir(n)
		if err != nil {
			return nil, err
		}
		defer d.release()
		return openat(d, ".", unix.O_PATH, 0)
	}
	d, name, err := s.parentOf(n)
	if err == nil {
		defer d.release()
		var f *os.File
		if f, err = openat(d, name, unix.O_PATH, 0); err == nil {
			info, err := s.stat(int(f.Fd()), "")
			if err == nil && identityOf(info) == n.is {
				return f, nil
			}
			_ = f.Close() // it was another file
		}
	}
	h := s.handleOf(n) // of a file that has no name any more
	if h == nil {
		return nil, unix.ESTALE
	}
	defer h.mu.RUnlock()
	fd, err := unix.FcntlInt(uintptr(h.fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "pinned"), nil
}

// chown remembers an owner for as long as the server lives. The host's files
// keep theirs: they are the user's.
func (s *tree) chown(is identity, v setting) {
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

// create makes a file and opens it (CREATE), or makes it only (MKNOD).
func (s *Server) create(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	flags, mode := int(a.u32()), a.u32()
	a.skip(8)
	if r.op == opMknod {
		mode = uint32(flags)
		if mode&unix.S_IFMT != unix.S_IFREG && mode&unix.S_IFMT != 0 {
			return nil, unix.EPERM // sockets, FIFOs and devices
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
	f, err := openat(d, name, flags&(openFlags|unix.O_EXCL|unix.O_TRUNC)|unix.O_CREAT, mode&permissions)
	if err != nil {
		return nil, err
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
	h, err := s.newHandle(n, f)
	if err != nil {
		s.forget(n.id, 1)
		return nil, err
	}
	return put32(put64(out, h.id), s.closeReply(h, flags), 0), nil
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
	d, err := s.spot(parent, name)
	return parent, name, d, err
}

// spot is room for a name that the guest wants to use: a hidden one it may not
// make either.
func (s *tree) spot(parent *node, name string) (*dir, error) {
	if s.hidden(parent, name) {
		return nil, unix.EACCES
	}
	return s.room(parent, name)
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
	newDir, err := s.spot(newParent, newName)
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
