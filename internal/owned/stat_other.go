//go:build !linux

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
	mount uint64 // the file system
}

// stat looks at an entry of dir, "" for dir itself, and follows no link.
func stat(dir *os.File, name string) (entry, error) {
	var st unix.Stat_t
	var err error
	if name == "" {
		err = unix.Fstat(int(dir.Fd()), &st)
	} else {
		err = unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return entry{}, &os.PathError{Op: "stat", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	return entry{typeOf(uint32(st.Mode)), st.Uid, uint64(st.Dev)}, nil
}
