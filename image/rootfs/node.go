package rootfs

import (
	"io"
	"time"
)

// Kind is what a Node is.
type Kind uint8

// The kinds of nodes. Sockets do not appear in images.
const (
	Dir Kind = iota + 1
	File
	Symlink
	CharDevice
	BlockDevice
	FIFO
)

// Node is an inode of the tree. Hard links are several names for one Node.
type Node struct {
	Kind Kind
	// Mode holds the permission, set-ID and sticky bits, at most 0o7777.
	Mode     uint32
	UID, GID uint32
	ModTime  time.Time
	// Xattrs are the extended attributes by full name, values as the kernel's
	// getxattr returns them.
	Xattrs map[string]string
	// Target is what a Symlink points to, a guest path.
	Target string
	// Major and Minor number a device.
	Major, Minor uint32
	// Content holds the bytes of a File.
	Content Extent

	children map[string]*Node
	links    int
	// written is the path under which the tar stream already has this node.
	written string
}

// Extent is a range of a Spool.
type Extent struct {
	Spool  *Spool
	Offset int64
	Size   int64
}

func (e Extent) reader() io.Reader {
	return io.NewSectionReader(e.Spool.f, e.Offset, e.Size)
}

func newDir() *Node {
	return &Node{Kind: Dir, Mode: 0o755, children: map[string]*Node{}}
}
