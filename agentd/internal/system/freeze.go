//go:build linux

package system

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The requests that freeze and thaw a mounted file system (linux/fs.h: _IOWR('X', 119, int), _IOWR('X', 120, int)).
const (
	fifreeze = 0xc0045877
	fithaw   = 0xc0045878
)

// FreezeUpper writes the disk under the workload's root back and holds all writes to it. The overlay above can't be
// frozen itself.
func FreezeUpper() error { return upperRequest("freeze", fifreeze) }

// ThawUpper ends FreezeUpper. It is an error if the disk is not frozen.
func ThawUpper() error { return upperRequest("thaw", fithaw) }

func upperRequest(what string, request uint) error {
	dir, err := os.Open(upperDir)
	if err != nil {
		return fmt.Errorf("%s the disk: %w", what, err)
	}
	defer dir.Close()
	if err := unix.IoctlSetInt(int(dir.Fd()), request, 0); err != nil {
		return fmt.Errorf("%s the disk: %w", what, err)
	}
	return nil
}
