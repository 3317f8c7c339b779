package grants

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/policies"
)

// openHeld opens the file at a real path, and nothing that a link leads to.
func openHeld(path string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.6
		return openCompared(path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Copy returns the approved script as a file that nobody can change any more.
func Copy(h *policies.Hold) (*os.File, error) {
	from, err := openHeld(h.Path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(from, maxScript+1))
	_ = from.Close()
	if err != nil {
		return nil, err
	}
	if digest(text) != h.Program {
		return nil, fmt.Errorf("%s changed since it was approved", policies.QuoteArgs([]string{h.Path}))
	}
	const flags = unix.MFD_ALLOW_SEALING | unix.MFD_CLOEXEC
	fd, err := unix.MemfdCreate("msb-command", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("msb-command", flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), h.Path)
	_, err = io.Copy(f, bytes.NewReader(text))
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
