package rootfs

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"
)

// maxHardLinks is EXT4_LINK_MAX: one inode has at most that many names, one directory
// at most that many subdirectories.
const maxHardLinks = 65000

// Size returns the sum of the sizes of the files that are visible, each once,
// and the number of names.
func (t *Tree) Size() (bytes int64, names int) {
	seen := make(map[*node]bool)
	var walk func(*node)
	walk = func(dir *node) {
		for _, n := range dir.children {
			names++
			if n.kind == kindDir {
				walk(n)
				continue
			}
			if n.kind == kindFile && !seen[n] {
				bytes += n.content.size
			}
			seen[n] = true
		}
	}
	walk(t.root)
	return bytes, names
}

// WriteTar writes the tree as one tar stream in which parents come first, every
// name comes once, and a hard link comes after its target. The order depends on
// the tree alone. Written is called with the number of content bytes of each file.
// A tree is written once.
func (t *Tree) WriteTar(ctx context.Context, w io.Writer, written func(int64)) error {
	e := &emitter{ctx: ctx, tw: tar.NewWriter(w), written: written, buf: make([]byte, spoolBuffer)}
	if err := e.header("./", t.root, tar.TypeDir); err != nil {
		return err
	}
	if err := e.dir("", t.root); err != nil {
		return err
	}
	return e.tw.Close()
}

type emitter struct {
	ctx     context.Context // lives for one WriteTar
	tw      *tar.Writer
	written func(int64)
	buf     []byte
}

func (e *emitter) dir(path string, dir *node) error {
	subdirectories := 0
	for _, name := range slices.Sorted(maps.Keys(dir.children)) {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		n := dir.children[name]
		full := path + name
		if n.kind == kindDir {
			if subdirectories++; subdirectories > maxHardLinks-2 {
				return hostile(path, "the directory has more than %d subdirectories", maxHardLinks-2)
			}
			if err := e.header(full+"/", n, tar.TypeDir); err != nil {
				return err
			}
			if err := e.dir(full+"/", n); err != nil {
				return err
			}
			continue
		}
		if err := e.leaf(full, n); err != nil {
			return err
		}
	}
	return nil
}

func (e *emitter) leaf(path string, n *node) error {
	if n.written != "" {
		if n.links++; n.links >= maxHardLinks {
			return hostile(path, "the file has more than %d names", maxHardLinks)
		}
		return e.tw.WriteHeader(&tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeLink, Name: path, Linkname: n.written})
	}
	n.written = path
	switch n.kind {
	case kindFile:
		if err := e.header(path, n, tar.TypeReg); err != nil {
			return err
		}
		if n.content.size == 0 {
			return nil
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{e.tw}, n.content.reader(), e.buf); err != nil {
			return err
		}
		e.written(n.content.size)
		return nil
	case kindSymlink:
		return e.header(path, n, tar.TypeSymlink)
	case kindCharDevice:
		return e.header(path, n, tar.TypeChar)
	case kindBlockDevice:
		return e.header(path, n, tar.TypeBlock)
	case kindFIFO:
		return e.header(path, n, tar.TypeFifo)
	case kindDir:
	}
	return fmt.Errorf("rootfs: node %q of kind %d is no leaf", path, n.kind)
}

func (e *emitter) header(path string, n *node, flag byte) error {
	mtime := diskTime(n.modTime)
	hdr := &tar.Header{
		Format:   tar.FormatPAX,
		Typeflag: flag,
		Name:     path,
		Linkname: n.target,
		Size:     n.content.size,
		Mode:     int64(n.mode),
		Uid:      int(n.uid),
		Gid:      int(n.gid),
		ModTime:  mtime,
		Devmajor: int64(n.major),
		Devminor: int64(n.minor),
		// Without these the disk would say 1970 for both.
		AccessTime: mtime,
		ChangeTime: mtime,
	}
	if len(n.xattrs) > 0 {
		hdr.PAXRecords = make(map[string]string, len(n.xattrs))
	}
	for name, value := range n.xattrs {
		if name == aclAccess || name == aclDefault {
			var err error
			if value, err = diskACL(value); err != nil {
				return hostile(path, "extended attribute %q: %v", name, err)
			}
		}
		hdr.PAXRecords[xattrPAXPrefix+name] = value
	}
	if err := e.tw.WriteHeader(hdr); err != nil {
		if broken := e.tw.Flush(); broken != nil { // the stream is, and not the entry
			return broken
		}
		return hostile(path, "it can't be written as a tar entry: %v", err)
	}
	return nil
}

// diskTime keeps times in the range that compactext4 encodes right: it leaves the
// epoch bits of ext4 unset, so that 2038 and later would read as 1901 and later,
// and it fills the nanoseconds of times before 1970 with ones.
func diskTime(t time.Time) time.Time {
	switch {
	case t.IsZero() || t.Unix() < 0:
		return time.Unix(0, 0)
	case t.Unix() > math.MaxInt32:
		return time.Unix(math.MaxInt32, 0)
	default:
		return t
	}
}
