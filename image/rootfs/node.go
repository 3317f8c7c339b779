package rootfs

import (
	"io"
	"time"
)

// kind is what a node is.
type kind uint8

// The kinds of nodes. Sockets do not appear in images.
const (
	kindDir kind = iota + 1
	kindFile
	kindSymlink
	kindCharDevice
	kindBlockDevice
	kindFIFO
)

// node is an inode of the tree. Hard links are several names for one node.
type node struct {
	kind kind
	// mode holds the permission, set-ID and sticky bits, at most 0o7777.
	mode     uint32
	uid, gid uint32
	modTime  time.Time
	// xattrs are the extended attributes by full name, values as the kernel's
	// getxattr returns them.
	xattrs map[string]string
	// target is what a symlink points to, a guest path.
	target string
	// major and minor number a device.
	major, minor uint32
	// content holds the bytes of a file.
	content extent

	children map[string]*node
	links    int
	// written is the path under which the tar stream already has this node.
	written string
}

// extent is a range of a Spool.
type extent struct {
	spool  *Spool
	offset int64
	size   int64
}

func (e extent) reader() io.Reader {
	return io.NewSectionReader(e.spool.f, e.offset, e.size)
}

func newDir() *node {
	return &node{kind: kindDir, mode: 0o755, children: map[string]*node{}}
}
