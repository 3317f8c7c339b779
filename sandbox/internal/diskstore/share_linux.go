package diskstore

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// errNoReflink tells that files can't share blocks here.
var errNoReflink = errors.New("the file system can't share blocks")

// shareAll makes a file share all blocks of another (FICLONE, ioctl_ficlone(2)).
func shareAll(to, from *os.File) error {
	return reflinkError(unix.IoctlFileClone(int(to.Fd()), int(from.Fd())))
}

// shareRange makes a range of a file share the blocks of another's.
func shareRange(to *os.File, toAt int64, from *os.File, fromAt, length int64) error {
	return reflinkError(unix.IoctlFileCloneRange(int(to.Fd()), &unix.FileCloneRange{
		Src_fd: int64(from.Fd()), Src_offset: uint64(fromAt), Src_length: uint64(length), Dest_offset: uint64(toAt),
	}))
}

// reflinkError tells what a file system can't from what went wrong. EINVAL is also a range that is no whole blocks.
func reflinkError(err error) error {
	for _, cant := range []error{unix.EOPNOTSUPP, unix.EXDEV, unix.EINVAL, unix.ENOTTY, unix.ENOSYS, unix.EPERM} {
		if errors.Is(err, cant) {
			return errNoReflink
		}
	}
	return err
}

// eachExtent calls do for the parts of a file that hold data, in order.
func eachExtent(f *os.File, size int64, do func(start, end int64) error) error {
	for at := int64(0); at < size; {
		start, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole to the end
		}
		end := size
		if err == nil {
			end, err = f.Seek(start, unix.SEEK_HOLE)
		}
		if errors.Is(err, unix.EINVAL) { // a file system that doesn't know
			start, end, err = at, size, nil
		}
		if err != nil {
			return fmt.Errorf("looking for holes in %s: %w", f.Name(), err)
		}
		if err := do(start, min(end, size)); err != nil {
			return err
		}
		at = end
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// syncAll writes back what was written in dir's file system.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
