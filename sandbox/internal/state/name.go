package state

import (
	"errors"
	"fmt"
)

// Errors about named sandboxes.
var (
	ErrName       = errors.New("unusable sandbox name")
	ErrNoSandbox  = errors.New("there is no such sandbox")
	ErrExists     = errors.New("it exists already")
	ErrRunning    = errors.New("the sandbox is running")
	ErrNotRunning = errors.New("the sandbox is not running")
	ErrState      = errors.New("the sandbox's state can't be read")
)

// MaxNameLen is a DNS label's (RFC 1035): the name is the guest's host name too.
const MaxNameLen = 63

// CheckName says whether a sandbox may have this name. It becomes a directory's name and the guest's host name, so it is
// one DNS label: what looks like a path, an option or a terminal's command is refused (invariant 14).
func CheckName(name string) error {
	ok := len(name) > 0 && len(name) <= MaxNameLen && name[0] != '-' && name[len(name)-1] != '-'
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-'
	}
	if !ok {
		const shown = 80
		return fmt.Errorf("%w %.*q: use 1 to %d lower-case letters, digits and hyphens, such as web-1", ErrName, shown, name, MaxNameLen)
	}
	return nil
}
