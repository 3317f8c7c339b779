package runner

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// dropStrays closes, when the program is executed, every descriptor from first
// up. A shell, a CI runner or an MCP client leaves files and sockets open
// without close-on-exec; Landlock, seccomp and namespaces don't bind what is
// open already, so a guest that breaks out of the VMM would have them.
func dropStrays(first int) error {
	err := unix.CloseRange(uint(first), ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil || !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	// Linux before 5.11.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd) // the descriptor that read the directory is closed already
		}
	}
	return nil
}
