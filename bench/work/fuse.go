//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inMemory is the directory of the least that any server of host directories could be: one in the guest itself, that answers
// the guest's kernel from its memory, one request after the other, and checks nothing. What it takes is what FUSE takes.
const inMemory = "/in-memory"

// Of include/uapi/linux/fuse.h.
const (
	fuseHeader = 40
	fuseReply  = 16
	fuseBytes  = 1 << 20
)

var le = binary.LittleEndian

type memFile struct {
	parent uint64
	name   string
	mode   uint32
	data   []byte
}

// memServer is one file system, with what its kernel was told.
type memServer struct {
	fd    int
	files map[uint64]*memFile
	names map[memName]uint64
	last  uint64
	out   []byte
}

type memName struct {
	parent uint64
	name   string
}

// serveMemory mounts a directory and serves it until it is unmounted.
func serveMemory(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	const device = "/dev/fuse"
	if err := unix.Mknod(device, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 229))); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	fd, err := unix.Open(device, unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := unix.Mount("memory", dir, "fuse.memory", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,max_read=%d", fd, fuseBytes)); err != nil {
		return err
	}
	if err := readAhead(dir); err != nil {
		return err
	}
	s := &memServer{fd: fd, files: map[uint64]*memFile{1: {mode: unix.S_IFDIR | 0o755}}, names: map[memName]uint64{}, last: 1, out: make([]byte, 0, fuseBytes+4096)}
	runtime.LockOSThread()
	in := make([]byte, fuseBytes+4096)
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&in[0])), uintptr(len(in)))
		switch errno {
		case 0:
			if out := s.answer(in[:n]); out != nil {
				_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&out[0])), uintptr(len(out)))
			}
		case unix.EINTR, unix.ENOENT:
		case unix.ENODEV:
			return nil
		default:
			return errno
		}
	}
}

// readAhead makes the kernel read as much at once as a message holds.
func readAhead(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[4] == dir {
			return os.WriteFile("/sys/class/bdi/"+f[2]+"/read_ahead_kb", []byte(strconv.Itoa(fuseBytes>>10)), 0)
		}
	}
	return fmt.Errorf("%s is not mounted", dir)
}

// answer is the reply to a message, nil for none.
func (s *memServer) answer(in []byte) []byte {
	out, errno := s.do(le.Uint32(in[4:]), le.Uint64(in[16:]), in[fuseHeader:], s.out[:fuseReply])
	switch {
	case errno != 0:
		out = s.out[:fuseReply]
	case out == nil:
		return nil
	}
	le.PutUint32(out, uint32(len(out)))
	le.PutUint32(out[4:], uint32(-int32(errno)))
	copy(out[8:16], in[8:16])
	return out
}

func (s *memServer) do(op uint32, id uint64, b, out []byte) ([]byte, unix.Errno) {
	switch op {
	case 1: // LOOKUP
		return s.entry(out, s.names[memName{id, text(b)}]), 0
	case 2, 36, 42: // FORGET, INTERRUPT, BATCH_FORGET
		return nil, 0
	case 3: // GETATTR
		return s.attrOut(out, id), 0
	case 4: // SETATTR
		if f := s.files[id]; le.Uint32(b)&8 != 0 {
			f.data = f.data[:min(uint64(len(f.data)), le.Uint64(b[16:]))]
		}
		return s.attrOut(out, id), 0
	case 9: // MKDIR
		return s.entry(out, s.make(id, text(b[8:]), unix.S_IFDIR|0o755)), 0
	case 10, 11: // UNLINK, RMDIR
		at := memName{id, text(b)}
		delete(s.files, s.names[at])
		delete(s.names, at)
		return out, 0
	case 12, 45: // RENAME, RENAME2
		skip := map[uint32]int{12: 8, 45: 16}[op]
		from := text(b[skip:])
		to := text(b[skip+len(from)+1:])
		f := s.names[memName{id, from}]
		delete(s.names, memName{id, from})
		s.names[memName{le.Uint64(b), strings.Clone(to)}] = f
		return out, 0
	case 14, 27: // OPEN, OPENDIR: the cache stays, no FLUSH
		return append(out, 0, 0, 0, 0, 0, 0, 0, 0, 1<<1|1<<5, 0, 0, 0, 0, 0, 0, 0), 0
	case 15: // READ
		data := s.files[id].data
		at := min(le.Uint64(b[8:]), uint64(len(data)))
		return append(out, data[at:min(at+uint64(le.Uint32(b[16:])), uint64(len(data)))]...), 0
	case 16: // WRITE
		f, at, data := s.files[id], le.Uint64(b[8:]), b[40:]
		if end := at + uint64(len(data)); end > uint64(len(f.data)) {
			f.data = append(f.data, make([]byte, end-uint64(len(f.data)))...)
		}
		copy(f.data[at:], data)
		return le.AppendUint64(out, uint64(len(data))), 0
	case 18, 20, 25, 29: // RELEASE, FSYNC, FLUSH, RELEASEDIR
		return out, 0
	case 26: // INIT: as hostdir, with larger messages
		out = le.AppendUint32(le.AppendUint32(le.AppendUint32(out, 7), 38), fuseBytes)
		out = le.AppendUint32(out, le.Uint32(b[12:])&(1|1<<5|1<<12|1<<13|1<<14|1<<18|1<<22))
		out = le.AppendUint32(le.AppendUint32(out, 16|12<<16), fuseBytes)
		out = le.AppendUint16(le.AppendUint32(out, 1), fuseBytes>>12)
		return append(out, make([]byte, 64-(len(out)-fuseReply))...), 0
	case 28, 44: // READDIR, READDIRPLUS
		return s.list(out, id, le.Uint64(b[8:]), int(le.Uint32(b[16:])), op == 44), 0
	case 35: // CREATE
		f := s.names[memName{id, text(b[16:])}]
		if f == 0 {
			f = s.make(id, text(b[16:]), unix.S_IFREG|0o644)
		}
		return append(s.entry(out, f), 0, 0, 0, 0, 0, 0, 0, 0, 1<<1|1<<5, 0, 0, 0, 0, 0, 0, 0), 0
	default:
		return nil, unix.ENOSYS
	}
}

func text(b []byte) string { return unix.ByteSliceToString(b) }

func (s *memServer) make(parent uint64, name string, mode uint32) uint64 {
	s.last++
	name = strings.Clone(name)
	s.files[s.last] = &memFile{parent, name, mode, nil}
	s.names[memName{parent, name}] = s.last
	return s.last
}

// entry appends a fuse_entry_out; what was found or not may be cached for a second.
func (s *memServer) entry(b []byte, id uint64) []byte {
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(le.AppendUint64(b, id), 0), 1), 1)
	return s.attr(le.AppendUint64(b, 0), id)
}

func (s *memServer) attrOut(b []byte, id uint64) []byte {
	return s.attr(le.AppendUint64(le.AppendUint64(b, 1), 0), id)
}

func (s *memServer) attr(b []byte, id uint64) []byte {
	f := s.files[id]
	if f == nil {
		return append(b, make([]byte, 88)...)
	}
	for _, v := range []uint64{id, uint64(len(f.data)), uint64(len(f.data)+511) / 512, 1, 1, 1, 0} { // inode, size, blocks, times
		b = le.AppendUint64(b, v)
	}
	for _, v := range []uint32{0, f.mode, 1, 0, 0, 0, 4096, 0} { // ctime's nanoseconds, mode, links, owner, device, block
		b = le.AppendUint32(b, v)
	}
	return b
}

// list appends the entries of a directory from a place on.
func (s *memServer) list(b []byte, dir, from uint64, size int, plus bool) []byte {
	for id := max(from, 2); id <= s.last; id++ {
		f := s.files[id]
		if f == nil || f.parent != dir {
			continue
		}
		need := 24 + (len(f.name)+7)&^7
		if plus {
			need += 128
		}
		if len(b)-fuseReply+need > size {
			break
		}
		end := len(b) + need
		if plus {
			b = s.entry(b, id)
		}
		b = le.AppendUint64(le.AppendUint64(b, id), id+1)
		b = append(le.AppendUint32(le.AppendUint32(b, uint32(len(f.name))), f.mode>>12), f.name...)
		b = append(b, make([]byte, end-len(b))...)
	}
	return b
}
