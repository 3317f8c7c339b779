package rootfs

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// Layer is what ReadLayer made of one tar stream.
type Layer struct {
	entries   []entry
	whiteouts []whiteout
}

// entry adds or replaces one name.
type entry struct {
	name  string
	parts []string
	node  *node
	// link holds the components of a hard link's target; node is nil then.
	link     []string
	linkName string
}

const (
	// whiteoutPrefix marks a name as removed (OCI image layer specification, Whiteouts).
	whiteoutPrefix = ".wh."
	// opaqueMarker removes everything that lower layers have in its directory.
	opaqueMarker = ".wh..wh..opq"
	// metaPrefix marks bookkeeping of AUFS that old images carry; it is no content.
	metaPrefix = ".wh..wh."
	// maxDevMajor and maxDevMinor are what Linux's device numbers hold.
	maxDevMajor = 1<<12 - 1
	maxDevMinor = 1<<20 - 1
)

// ReadLayer reads a plain tar stream to its end, file contents into spool.
// Errors wrap ErrHostile or ErrLimit and name the entry.
func ReadLayer(ctx context.Context, r io.Reader, spool *Spool, budget *Budget) (*Layer, error) {
	r = budget.reader(r)
	tr := tar.NewReader(r)
	l := &Layer{}
	last := ""
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		// Names are judged below, by rules for guest paths.
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return nil, tarError(last, err)
		}
		last = hdr.Name
		if err := l.add(ctx, hdr, tr, spool, budget); err != nil {
			return nil, tarError(last, err)
		}
	}
	// The digest is over the whole stream: read what follows the end mark.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, tarError(last, err)
	}
	return l, spool.finish()
}

// tarError says where a stream stopped making sense.
func tarError(last string, err error) error {
	switch {
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong), errors.Is(err, io.ErrUnexpectedEOF):
		where := "at its start"
		if last != "" {
			where = "at or after entry " + quoteName(last)
		}
		return fmt.Errorf("%w: the tar stream is broken %s: %w", ErrHostile, where, err)
	default:
		return err
	}
}

func (l *Layer) add(ctx context.Context, hdr *tar.Header, content io.Reader, spool *Spool, budget *Budget) error {
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return budget.addEntry(hdr.Name, len(hdr.Name))
	}
	// As parts of the header they would keep all of it, a megabyte of records that are of no use.
	hdr.Name, hdr.Linkname = strings.Clone(hdr.Name), strings.Clone(hdr.Linkname)
	parts, err := splitName(hdr.Name)
	if err != nil {
		return err
	}
	if err := budget.addEntry(hdr.Name, len(hdr.Name)+len(hdr.Linkname)+partBytes*len(parts)); err != nil {
		return err
	}
	if handled, err := l.addWhiteout(hdr.Name, parts); handled || err != nil {
		return err
	}
	e := entry{name: hdr.Name, parts: parts}
	if hdr.Typeflag == tar.TypeLink {
		if e.link, err = splitName(hdr.Linkname); err != nil {
			return hostile(hdr.Name, "its hard link target %s is no path inside the image", quoteName(hdr.Linkname))
		}
		if err := budget.addMetadata(hdr.Name, partBytes*len(e.link)); err != nil {
			return err
		}
		e.linkName = hdr.Linkname
		l.entries = append(l.entries, e)
		return nil
	}
	if e.node, err = nodeOf(hdr); err != nil {
		return err
	}
	if err := budget.addMetadata(hdr.Name, xattrBytes(e.node.xattrs)); err != nil {
		return err
	}
	if e.node.kind == kindFile {
		if err := budget.addFile(hdr.Name, hdr.Size); err != nil {
			return err
		}
		if e.node.content, err = spool.append(ctx, content, hdr.Size); err != nil {
			return err
		}
	}
	l.entries = append(l.entries, e)
	return nil
}

// nodeOf checks an entry's metadata.
func nodeOf(hdr *tar.Header) (*node, error) {
	kind, ok := kindOf(hdr.Typeflag)
	if !ok {
		return nil, hostile(hdr.Name, "entries of type %q are unknown", hdr.Typeflag)
	}
	if hdr.Size < 0 {
		return nil, hostile(hdr.Name, "its size is negative")
	}
	// The last number is reserved: it means "leave as is" to chown.
	if hdr.Uid < 0 || hdr.Gid < 0 || int64(hdr.Uid) >= math.MaxUint32 || int64(hdr.Gid) >= math.MaxUint32 {
		return nil, hostile(hdr.Name, "its owner %d:%d is no Linux user and group", hdr.Uid, hdr.Gid)
	}
	xattrs, err := readXattrs(hdr.Name, hdr.PAXRecords)
	if err != nil {
		return nil, err
	}
	n := &node{
		kind:    kind,
		mode:    uint32(hdr.Mode) & 0o7777,
		uid:     uint32(hdr.Uid),
		gid:     uint32(hdr.Gid),
		modTime: hdr.ModTime,
		xattrs:  xattrs,
	}
	switch kind {
	case kindDir:
		n.children = map[string]*node{}
	case kindSymlink:
		if hdr.Linkname == "" || len(hdr.Linkname) >= maxPathBytes || strings.IndexByte(hdr.Linkname, 0) >= 0 {
			return nil, hostile(hdr.Name, "its link target is empty, too long or holds a NUL byte")
		}
		n.target = hdr.Linkname
	case kindCharDevice, kindBlockDevice:
		if hdr.Devmajor < 0 || hdr.Devmajor > maxDevMajor || hdr.Devminor < 0 || hdr.Devminor > maxDevMinor {
			return nil, hostile(hdr.Name, "%d:%d is no Linux device number", hdr.Devmajor, hdr.Devminor)
		}
		n.major, n.minor = uint32(hdr.Devmajor), uint32(hdr.Devminor)
	case kindFile, kindFIFO:
	}
	return n, nil
}

func kindOf(flag byte) (kind, bool) {
	switch flag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont, 0:
		return kindFile, true
	case tar.TypeDir:
		return kindDir, true
	case tar.TypeSymlink:
		return kindSymlink, true
	case tar.TypeChar:
		return kindCharDevice, true
	case tar.TypeBlock:
		return kindBlockDevice, true
	case tar.TypeFifo:
		return kindFIFO, true
	default:
		return 0, false
	}
}
