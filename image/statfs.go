//go:build unix

package image

import (
	"fmt"
	"io/fs"
	"math"
	"syscall"

	"golang.org/x/sys/unix"
)

// statBlock is the unit of st_blocks on every Unix. Bytes.
const statBlock = 512

// allocatedBytes is what a sparse file takes on the disk.
func allocatedBytes(st fs.FileInfo) int64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Blocks * statBlock
	}
	return st.Size()
}

// checkFree refuses early what can't fit: the layers are larger decompressed.
func checkFree(dir string, need int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("look for free space under %s: %w", dir, err)
	}
	free := st.Bavail * uint64(st.Bsize) // the types differ between systems; a block size is positive
	if free < math.MaxInt64 && int64(free) < need {
		return spaceError(dir, fmt.Errorf("%d bytes are free, at least %d are needed: %w", free, need, syscall.ENOSPC))
	}
	return nil
}
