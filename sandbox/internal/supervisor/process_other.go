//go:build !linux

package supervisor

import (
	"errors"

	"golang.org/x/sys/unix"
)

// closeStrays does nothing: no guest starts here.
func closeStrays(int) error { return nil }

// limitCore keeps secrets out of core files (invariant 8), for this process and its children.
func limitCore() error {
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}

// setName does nothing: no guest starts here.
func setName() {}

// executeAgain fails: no guest starts here.
func executeAgain([]byte) error { return errors.ErrUnsupported }

// hideMemory has nothing to do where no backend runs yet.
func hideMemory() error { return nil }
