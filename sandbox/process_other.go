//go:build !linux

package sandbox

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup keeps the terminal's signals from the supervisor; with stays, its hang-up too.
func ownGroup(stays bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: !stays, Setsid: stays}
}

// closeStrays does nothing: no guest starts here.
func closeStrays(int) error { return nil }

// limitCore keeps secrets out of core files (invariant 8), for this process and its children.
func limitCore() error {
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}

// hideMemory has nothing to do where no backend runs yet.
func hideMemory() error { return nil }
