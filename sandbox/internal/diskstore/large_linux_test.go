package diskstore

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestI12_DisksTooLargeAreRefused with what they may be, and before a list is made that no import would take. The disks are
// in memory: not every file system has files of this size.
func TestI12_DisksTooLargeAreRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, size := range []int64{maxDiskBytes, maxDiskBytes + 1} {
		fd, err := unix.MemfdCreate("disk", unix.MFD_CLOEXEC)
		must(t, err)
		disk := os.NewFile(uintptr(fd), "disk")
		must(t, disk.Truncate(size))
		work, err := s.Begin(t.Context())
		must(t, err)
		list, err := work.Add(t.Context(), fmt.Sprintf("/proc/self/fd/%d", fd))
		if size <= maxDiskBytes && (err != nil || list.Size != size) || size > maxDiskBytes && (err == nil || !strings.Contains(err.Error(), "too large")) {
			t.Errorf("%d bytes: %+v, %v", size, list, err)
		}
		must(t, errors.Join(work.Abort(), disk.Close()))
	}
}
