package cow

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileOf is what the host says of a file.
func fileOf(info fs.FileInfo) File {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return File{}
	}
	return File{Mode: st.Mode, Inode: st.Ino, Size: uint64(st.Size), Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()}
}

// mount is what a directory is mounted from.
type mount struct {
	major, minor uint32
	id           uint64
}

func mountOf(dir *os.File) (mount, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st); err != nil {
		return mount{}, fmt.Errorf("statx: %w", err)
	}
	m := mount{major: st.Dev_major, minor: st.Dev_minor}
	if st.Mask&unix.STATX_MNT_ID != 0 { // from Linux 5.8 on
		m.id = st.Mnt_id
	}
	return m, nil
}

// noReplace renames a file of dir to a name that must be free. Where the file
// system can't, EINVAL.
func noReplace(dir *os.File, from, to string) error {
	return unix.Renameat2(int(dir.Fd()), from, int(dir.Fd()), to, unix.RENAME_NOREPLACE)
}
