package image

import (
	"errors"
	"fmt"
	"syscall"
)

// spaceError gives errors of a full disk their sentinel and remedy.
func spaceError(dir string, err error) error {
	if err == nil || errors.Is(err, ErrNoSpace) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w under %s: free some, remove images that are not needed, or set MSB_HOME to a larger disk: %w",
			ErrNoSpace, dir, err)
	}
	return err
}
