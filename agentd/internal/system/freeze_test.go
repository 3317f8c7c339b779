//go:build linux

package system

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestFreezesAreTheKernelsRequests: FIFREEZE, FITHAW and FITRIM of linux/fs.h are _IOWR('X', 119, int), _IOWR('X', 120, int) and
// _IOWR('X', 121, struct fstrim_range). A thaw in place of a freeze would let everybody write to a disk that is copied.
func TestFreezesAreTheKernelsRequests(t *testing.T) {
	t.Parallel()
	const readWrite = 3 // _IOC_READ|_IOC_WRITE
	for _, r := range []struct{ number, size, got int }{{119, 4, fifreeze}, {120, 4, fithaw}, {121, 24, fitrim}} {
		if want := readWrite<<30 | r.size<<16 | 'X'<<8 | r.number; r.got != want {
			t.Errorf("request %d is %#x, want %#x", r.number, r.got, want)
		}
	}
}

// TestI14_SharedDisksBringNoPrivileges: what another sandbox wrote is no device here and no set-user-ID program, and what is deleted
// takes no space on the host.
func TestI14_SharedDisksBringNoPrivileges(t *testing.T) {
	t.Parallel()
	for readOnly, want := range map[bool]string{true: "", false: "discard"} {
		flags, options := sharedMount(readOnly)
		if flags&unix.MS_NODEV == 0 || flags&unix.MS_NOSUID == 0 || flags&unix.MS_NOATIME == 0 || (flags&unix.MS_RDONLY != 0) != readOnly || options != want {
			t.Errorf("read-only %v: %#x, %q", readOnly, flags, options)
		}
	}
}
