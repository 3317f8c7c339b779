//go:build unix

package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// treeWriter writes a host directory as a tar stream. It opens everything through
// os.Root without following links, so that nothing outside the directory is read
// even when names are swapped while it runs.
type treeWriter struct {
	ctx  context.Context // lives for one writeTree
	root *os.Root
	tw   *tar.Writer
	dev  uint64
	// devices says whether device nodes are taken: only root could have made them.
	devices bool
	// owners says whether owners are kept. Without root, everything belongs to the guest's
	// root, since the directory's owner doesn't exist in the guest.
	owners bool
	// inodes are files with several names, by device and inode.
	inodes  map[[2]uint64]string
	entries int
	limits  sizeLimits
}

// writeTree writes names in byte order. It leaves out sockets, and what is mounted inside the
// directory.
func writeTree(ctx context.Context, root *os.Root, w io.Writer, limits sizeLimits) error {
	st, err := root.Lstat(".")
	if err != nil {
		return err
	}
	asRoot := os.Geteuid() == 0
	f := &treeWriter{
		ctx: ctx, root: root, tw: tar.NewWriter(w), dev: statOf(st).dev,
		devices: asRoot, owners: asRoot, inodes: make(map[[2]uint64]string), limits: limits,
	}
	if err := f.entry(".", st); err != nil {
		return err
	}
	return f.tw.Close()
}

func (f *treeWriter) dir(name string) error {
	d, err := f.root.Open(name)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	_ = d.Close()
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		child := path.Join(name, n)
		st, err := f.root.Lstat(child)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := f.entry(child, st); err != nil {
			return err
		}
	}
	return nil
}

func (f *treeWriter) entry(name string, st fs.FileInfo) error {
	if f.entries++; f.entries > f.limits.entries {
		return fmt.Errorf("%w: more than %d entries (at %q)", ErrLimit, f.limits.entries, name)
	}
	sys := statOf(st)
	hdr := &tar.Header{
		Format: tar.FormatPAX, Name: name, Mode: int64(sys.mode & 0o7777),
		ModTime: st.ModTime(),
	}
	if f.owners {
		hdr.Uid, hdr.Gid = int(sys.uid), int(sys.gid)
	}
	switch mode := st.Mode(); {
	case mode.IsDir():
		if sys.dev != f.dev {
			return nil
		}
		return f.directory(name, hdr)
	case mode&fs.ModeSymlink != 0:
		target, err := f.root.Readlink(name)
		if err != nil {
			return err
		}
		hdr.Typeflag, hdr.Linkname = tar.TypeSymlink, target
	case mode&fs.ModeNamedPipe != 0:
		hdr.Typeflag = tar.TypeFifo
	case mode&fs.ModeDevice != 0:
		if !f.devices {
			return nil
		}
		hdr.Typeflag = tar.TypeBlock
		if mode&fs.ModeCharDevice != 0 {
			hdr.Typeflag = tar.TypeChar
		}
		hdr.Devmajor, hdr.Devminor = int64(unix.Major(sys.rdev)), int64(unix.Minor(sys.rdev))
	case mode.IsRegular():
		return f.file(name, st, sys, hdr)
	default:
		return nil
	}
	return f.tw.WriteHeader(hdr)
}

func (f *treeWriter) directory(name string, hdr *tar.Header) error {
	d, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	hdr.Typeflag, hdr.Name = tar.TypeDir, name+"/"
	hdr.PAXRecords, err = xattrRecords(d)
	_ = d.Close()
	if err != nil {
		return err
	}
	if err := f.tw.WriteHeader(hdr); err != nil {
		return err
	}
	return f.dir(name)
}

func (f *treeWriter) file(name string, st fs.FileInfo, sys hostStat, hdr *tar.Header) error {
	key := [2]uint64{sys.dev, sys.ino}
	if sys.nlink > 1 {
		if first, ok := f.inodes[key]; ok {
			return f.tw.WriteHeader(&tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeLink, Name: name, Linkname: first})
		}
		f.inodes[key] = name
	}
	if st.Size() > f.limits.fileBytes {
		return fmt.Errorf("%w: file %q has %d bytes, at most %d are allowed", ErrLimit, name, st.Size(), f.limits.fileBytes)
	}
	// Without O_NONBLOCK a FIFO that took the name would hold us for ever.
	in, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	now, err := in.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(st, now) {
		return fmt.Errorf("%q was replaced while it was read; try again", name)
	}
	hdr.Typeflag, hdr.Size = tar.TypeReg, now.Size()
	if hdr.PAXRecords, err = xattrRecords(in); err != nil {
		return err
	}
	if err := f.tw.WriteHeader(hdr); err != nil {
		return err
	}
	if n, err := io.Copy(f.tw, io.LimitReader(in, now.Size())); err != nil || n != now.Size() {
		return errors.Join(err, fmt.Errorf("%q changed while it was read; try again", name))
	}
	return nil
}

// hostStat is the part of stat that systems spell differently.
type hostStat struct {
	dev, ino, rdev, nlink uint64
	mode                  uint32
	uid, gid              uint32
}

func statOf(st fs.FileInfo) hostStat {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return hostStat{}
	}
	return hostStat{
		dev: uint64(sys.Dev), ino: sys.Ino, rdev: uint64(sys.Rdev), nlink: uint64(sys.Nlink), //nolint:unconvert // types differ between systems
		mode: uint32(sys.Mode), uid: sys.Uid, gid: sys.Gid, //nolint:unconvert // types differ between systems
	}
}

// keptHostXattr: labels and other bookkeeping of the host mean nothing in a guest.
func keptHostXattr(name string) bool {
	return name == "security.capability" || name == "system.posix_acl_access" ||
		name == "system.posix_acl_default" || strings.HasPrefix(name, "user.") && !strings.Contains(name, "=")
}
