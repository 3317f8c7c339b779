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

// Spare is how many bytes a guest may write below dir.
func Spare(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	free, keep := st.Bavail, st.Blocks/spareFraction
	if free <= keep {
		return 0, fmt.Errorf("%s: less than a %dth of its file system is free: %w", dir, spareFraction, syscall.ENOSPC)
	}
	return int64(min((free-keep)*uint64(st.Bsize), math.MaxInt64)), nil
}
