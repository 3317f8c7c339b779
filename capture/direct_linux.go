package capture

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openDirect opens the file of f once more, for writes past the host's page cache; nil if its file system
// can't do that. Through the cache each byte of a busy capture is copied once more, into pages that have to
// be found and that drive other programs' out: half of what a capture costs.
func openDirect(f *os.File) *os.File {
	direct, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return nil
	}
	return direct
}
