//go:build linux

package hostdir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenRoot opens a directory name by name and follows no link: whoever may write on the way, such as the guest of another
// sandbox, would put one there between the check of the path and this. openat2(2) with RESOLVE_NO_SYMLINKS does the same
// from Linux 5.6 on.
func OpenRoot(path string) (*os.Root, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%s is no absolute path", path)
	}
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	at, err := unix.Open("/", flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/", Err: err}
	}
	for _, name := range strings.FieldsFunc(path, func(c rune) bool { return c == '/' }) {
		next, err := unix.Openat(at, name, flags, 0)
		_ = unix.Close(at) // it was read only
		if err != nil {
			return nil, fmt.Errorf("%s has no directory %q, or a link in its place: %w", path, name, err)
		}
		at = next
	}
	defer func() { _ = unix.Close(at) }() // the same
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", at))
}

// walk opens a directory below the top name by name, so that no link is followed that the host has put on the way since
// the guest looked.
func (s *tree) walk(path string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	at, err := s.root.Open(".")
	if err != nil {
		return nil, err
	}
	for _, name := range strings.FieldsFunc(path, func(c rune) bool { return c == '/' }) {
		var fd int
		err = retry(func() (err error) { fd, err = unix.Openat(int(at.Fd()), name, flags, 0); return err })
		_ = at.Close() // it was read only
		if err != nil {
			return nil, err
		}
		at = os.NewFile(uintptr(fd), name)
	}
	return at, nil
}
