//go:build unix

package state

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestI11_CopiesLeaveSpace: a twentieth of the file system is no guest's, down to the last block.
func TestI11_CopiesLeaveSpace(t *testing.T) {
	t.Parallel()
	for free, want := range map[uint64]int64{1000: 950 << 12, 51: 1 << 12, 50: 0, 49: 0, 0: 0} {
		got, err := spareOf("/x", &unix.Statfs_t{Bsize: 1 << 12, Blocks: 1000, Bavail: free})
		if got != want || errors.Is(err, syscall.ENOSPC) != (want == 0) {
			t.Errorf("of %d blocks: %d bytes, %v; want %d", free, got, err, want)
		}
	}
}
