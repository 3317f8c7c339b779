package owned

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// entry is what counts of a file.
type entry struct {
	mode  fs.FileMode // its type
	uid   uint32
	mount mount
}

// mount tells mounts apart, also those of one file system. Kernels before 5.8 do not say which mount a file is on: there
// it is the file system, of directories alone, since overlayfs gives other files the numbers of its layers.
type mount struct{ id, dev uint64 }

// stat looks at an entry of dir, "" for dir itself, and follows no link.
func stat(dir *os.File, name string) (entry, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var st unix.Statx_t
	if err := unix.Statx(int(dir.Fd()), name, flags, unix.STATX_TYPE|unix.STATX_UID|unix.STATX_MNT_ID, &st); err != nil {
		return entry{}, &os.PathError{Op: "stat", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	e := entry{mode: typeOf(uint32(st.Mode)), uid: st.Uid}
	switch {
	case st.Mask&unix.STATX_MNT_ID != 0:
		e.mount.id = st.Mnt_id
	case e.mode == fs.ModeDir:
		e.mount.dev = unix.Mkdev(st.Dev_major, st.Dev_minor)
	default:
		own, err := stat(dir, "")
		if err != nil {
			return entry{}, err
		}
		e.mount = own.mount
	}
	return e, nil
}
