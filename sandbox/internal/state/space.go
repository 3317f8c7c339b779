//go:build unix

package state

import (
	"fmt"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// spareFraction is the part of a file system that a copy from a guest leaves
// free: a guest that sends without end must not fill the host's disk.
const spareFraction = 20

// MinFree is the least room, in bytes, in which a guest's disk is put to use. The file is sparse, and the start of a
// machine writes some hundred KiB: where these are refused, ext4 loses blocks of directories that it believes written,
// and the disk is damaged for good.
const MinFree = 16 << 20

// CheckRoom refuses to start a machine with a disk below dir when less than MinFree is free.
func CheckRoom(dir string) error {
	free, err := Free(dir)
	if err == nil && free < MinFree {
		return fmt.Errorf("%s has %d KiB free, and a sandbox with a disk starts only with %d MiB, or its disk could be damaged: %w", dir, free>>10, MinFree>>20, syscall.ENOSPC)
	}
	return err
}

// Free is how many bytes are free below dir.
func Free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(min(st.Bavail*uint64(st.Bsize), math.MaxInt64)), nil
}

// Spare is how many bytes a guest may write below dir.
func Spare(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return spareOf(dir, &st)
}

func spareOf(dir string, st *unix.Statfs_t) (int64, error) {
	free, keep := st.Bavail, st.Blocks/spareFraction
	if free <= keep {
		return 0, fmt.Errorf("%s: less than a %dth of its file system is free: %w", dir, spareFraction, syscall.ENOSPC)
	}
	return int64(min((free-keep)*uint64(st.Bsize), math.MaxInt64)), nil
}
