package capture

import (
	"os"

	"golang.org/x/sys/unix"
)

// uncachedMin is the size from which a write leaves no pages behind: less is a quiet guest's, and the
// next write finds its page.
const uncachedMin = batchBytes / 2

// pageSize is the unit in which pages are dropped, or a multiple of it.
const pageSize = 64 << 10

// writeAt is f.WriteAt that keeps a busy capture out of the host's page cache where the kernel can
// (RWF_DONTCACHE, Linux 6.14): pages that the disk has got are used again at once. Otherwise a capture
// drives everything else out, and finding fresh pages costs more than the copy into them. What does not
// fill its last page is written as usual, so that the next write need not read it back.
func writeAt(f *os.File, b []byte, at int64) error {
	whole := len(b) - int((at+int64(len(b)))%pageSize)
	if whole >= uncachedMin {
		n := writeUncached(f, b[:whole], at)
		b, at = b[n:], at+int64(n)
	}
	_, err := f.WriteAt(b, at)
	return err
}

// writeUncached returns how much it wrote. The reason for less is found by writing the rest as usual.
func writeUncached(f *os.File, b []byte, at int64) (n int) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	_ = conn.Control(func(fd uintptr) {
		n, err = unix.Pwritev2(int(fd), [][]byte{b}, at, unix.RWF_DONTCACHE)
	})
	return max(n, 0)
}
