package runner

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// sealed returns the program as a file without a name that nobody can change any more. Its Name is a path that leads to it.
func (p Program) sealed() (*os.File, error) {
	if p == nil {
		return nil, errors.ErrUnsupported
	}
	from, err := p()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	const name, flags = "msb-vmm", unix.MFD_ALLOW_SEALING | unix.MFD_CLOEXEC
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("%s/%d", Descriptors, fd))
	if _, err = io.Copy(f, from); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// spawnFirst starts the runner in the small program, or in the one that runs where that can't be executed: it is not
// built in, or vm.memfd_noexec or a security module refuses it.
func spawnFirst(p Plan, program Program, files []*os.File, stderr *os.File, l limits) (*process, *os.File, error) {
	if small, err := program.sealed(); err == nil {
		defer small.Close()
		if proc, status, err := spawnBounded(p, small, files, stderr, l); err == nil {
			return proc, status, nil
		}
	}
	return spawnBounded(p, nil, files, stderr, l)
}
