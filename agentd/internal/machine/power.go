//go:build linux

package machine

import "golang.org/x/sys/unix"

// Leave writes everything back and leaves the machine. There is no ACPI: the
// VMM takes a reboot for the end (QEMU by -no-reboot).
func Leave() error {
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

// KillAll signals every process but PID 1, as PID 1 alone may.
func KillAll(sig unix.Signal) { _ = unix.Kill(-1, sig) } // none left is fine
