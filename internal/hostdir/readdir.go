//go:build linux

package hostdir

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// direntHead is what precedes the name in Linux's struct linux_dirent64:
// d_ino, d_off, d_reclen, d_type.
const direntHead = 19

// readdir answers READDIR, and with plus READDIRPLUS, from the place that the
// guest names: a place is the host's own, which the kernel checks.
func (s *Server) readdir(r request, out []byte, plus bool) ([]byte, error) {
	a := args{rest: r.body}
	fh, offset, size := a.u64(), a.u64(), a.u32()
	h, err := s.openOf(r, &a, fh)
	if err != nil {
		return nil, err
	}
	h.mu.RUnlock()
	h.mu.Lock() // the place in the directory is the descriptor's own
	defer h.mu.Unlock()
	if h.done || h.node.is.kind != unix.S_IFDIR {
		return nil, unix.EBADF
	}
	if _, err := unix.Seek(h.fd(), int64(offset), unix.SEEK_SET); err != nil {
		return nil, err
	}
	limit := replyBytes + int(min(size, maxIO))
	buf := make([]byte, 32<<10)
	for {
		var got int
		err := retry(func() (err error) { got, err = unix.Getdents(h.fd(), buf); return err })
		if err != nil || got <= 0 {
			return out, err
		}
		for rest := buf[:got]; len(rest) > direntHead; {
			length := int(order.Uint16(rest[16:]))
			entry := rest[:length]
			rest = rest[length:]
			var full bool
			if out, full = s.addEntry(out, limit, h, entry, plus); full {
				return out, nil
			}
		}
	}
}

// addEntry appends one entry; full tells that there is no room for it.
func (s *Server) addEntry(out []byte, limit int, h *handle, entry []byte, plus bool) (_ []byte, full bool) {
	inode, next, kind := order.Uint64(entry), order.Uint64(entry[8:]), entry[18]
	name, _, _ := bytes.Cut(entry[direntHead:], []byte{0})
	dots := string(name) == "." || string(name) == ".."
	need := 24 + (len(name)+7)&^7
	if plus {
		need += entryBytes
	}
	if len(out)+need > limit {
		return out, true
	}
	var info *unix.Statx_t
	if !dots {
		if hidden, _ := s.hidden(h.node, string(name)); hidden || kind == unix.DT_SOCK || kind == unix.DT_FIFO || kind == unix.DT_BLK || kind == unix.DT_CHR {
			return out, false
		}
		if plus || kind == unix.DT_UNKNOWN {
			var err error
			if info, err = s.stat(h.fd(), string(name)); err != nil {
				return out, false // removed just now
			}
			if s.servable(info) == unix.ENOENT { //nolint:errorlint // it returns numbers as they are
				return out, false
			}
			kind = byte(info.Mode >> 12)
		}
	}
	if plus {
		out = s.addPlus(out, h.node, string(name), info)
	}
	out = put32(put64(out, inode, next), uint32(len(name)), uint32(kind))
	out = append(out, name...)
	return append(out, make([]byte, -len(name)&7)...), false
}

// addPlus appends what a lookup of the name would give; nothing where there is
// nothing to give, upon which the guest looks the name up when it needs it.
func (s *Server) addPlus(out []byte, parent *node, name string, info *unix.Statx_t) []byte {
	if info != nil && s.servable(info) == nil {
		if n, err := s.remember(parent, name, identityOf(info)); err == nil {
			return s.putEntry(out, n, info)
		}
	}
	return append(out, make([]byte, entryBytes)...)
}
