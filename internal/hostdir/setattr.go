//go:build linux

package hostdir

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

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
		if err := s.chown(n, v); err != nil {
			return nil, err
		}
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
	if n == s.first {
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
