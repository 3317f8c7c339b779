package qemu

import (
	"bytes"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// newMemory makes a file without a name that holds a machine's memory or state.
func newMemory(name string, size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("msb-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// seal makes the file one that nobody can change any more: QEMU opens it for
// writing though it maps it privately, and may be broken into.
func seal(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	return os.NewSyscallError("seal memory", err)
}

// used returns the parts of a file that hold anything but zeros.
func used(f *os.File, size int64) ([]extent, error) {
	parts, err := written(f, size)
	if err != nil {
		return nil, err
	}
	var list []extent
	block := make([]byte, extentBytes)
	for _, part := range parts {
		for at := part.Offset; at < part.Offset+part.Length; at += extentBytes {
			n, err := f.ReadAt(block[:min(extentBytes, part.Offset+part.Length-at)], at)
			if err != nil {
				return nil, err
			}
			if len(bytes.Trim(block[:n], "\x00")) == 0 {
				continue
			}
			if last := len(list) - 1; last >= 0 && list[last].Offset+list[last].Length == at {
				list[last].Length += int64(n)
				continue
			}
			list = append(list, extent{at, int64(n)})
		}
	}
	return list, nil
}

// extentBytes is the size of the pieces in which memory is searched for zeros.
const extentBytes = 16 << 10

// written returns the parts of a file that are not holes.
func written(f *os.File, size int64) ([]extent, error) {
	var list []extent
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return nil, os.NewSyscallError("lseek", err)
		}
		end, err := unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return nil, os.NewSyscallError("lseek", err)
		}
		list = append(list, extent{begin, end - begin})
		at = end
	}
	return list, nil
}
