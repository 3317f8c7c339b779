//go:build linux

package fileops

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/tartree"
)

// Pack writes what is at p as an archive.
func Pack(ctx context.Context, w io.Writer, p, as string, follow bool) (tartree.Report, error) {
	if err := check("pack", p); err != nil {
		return tartree.Report{}, err
	}
	p = path.Clean(p)
	if as == "" && p != "/" {
		as = path.Base(p)
	}
	if follow {
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			return tartree.Report{}, err
		}
		p = real
	}
	dir, name := path.Dir(p), path.Base(p)
	if p == "/" {
		dir, name = "/", "."
	}
	if _, err := os.Lstat(p); err != nil {
		return tartree.Report{}, err // names the whole path
	}
	if p != "/" && synthetic(p) {
		return tartree.Report{}, &os.PathError{Op: "pack", Path: p, Err: errSynthetic}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return tartree.Report{}, err
	}
	defer func() { _ = root.Close() }()
	leave := func(entry string) bool { return synthetic(path.Join(dir, entry)) }
	return tartree.Pack(ctx, w, root, name, tartree.PackOptions{As: as, Leave: leave})
}

// PackAll writes what is in a directory of agentd's own as an archive. Of an
// overlay's upper layer it leaves out which files are deleted and which
// directories hide what is below them.
func PackAll(ctx context.Context, w io.Writer, dir string) (tartree.Report, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return tartree.Report{}, err
	}
	defer func() { _ = root.Close() }()
	return tartree.Pack(ctx, w, root, ".", tartree.PackOptions{As: "."})
}

// errSynthetic refuses files whose size is told as 0: a copy would be empty.
var errSynthetic = errors.New("its file system shows the kernel's state; read it with a command in the guest")

// synthetic tells file systems that show the kernel's state: reading all of
// them has effects, and no end.
func synthetic(p string) bool {
	var st unix.Statfs_t
	if unix.Statfs(p, &st) != nil {
		return false
	}
	switch st.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEVPTS_SUPER_MAGIC,
		unix.TRACEFS_MAGIC, unix.DEBUGFS_MAGIC:
		return true
	}
	return false
}

// Unpack extracts the archive r into the directory that u names.
func Unpack(ctx context.Context, u *agentpb.UnpackStart, r io.Reader) (tartree.Report, error) {
	p := u.GetPath()
	if err := check("unpack", p); err != nil {
		return tartree.Report{}, err
	}
	root, err := os.OpenRoot(p)
	if err != nil {
		return tartree.Report{}, err
	}
	defer func() { _ = root.Close() }()
	o := tartree.UnpackOptions{KeepOwner: true, PastCache: pastCache}
	if owner := u.GetOwner(); owner != nil {
		o.Owner = &tartree.Owner{UID: int(owner.GetUid()), GID: int(owner.GetGid())}
	}
	return tartree.Unpack(ctx, r, root, o)
}

// pastCache implements tartree.UnpackOptions.PastCache.
func pastCache(f *os.File, past bool) error {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil && (flags&unix.O_DIRECT != 0) != past {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags^unix.O_DIRECT)
	}
	return err
}
