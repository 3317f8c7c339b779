package main

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/netstack"
)

// tapLink is a TAP as the link, without the stream socket that stands for a
// VMM: how slirp4netns has its guest.
type tapLink struct {
	tap *os.File
	raw syscall.RawConn
	buf []byte
}

var _ netstack.Link = (*tapLink)(nil)

func newTapLink(fd int) (*tapLink, error) {
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	tap := os.NewFile(uintptr(fd), "tap")
	raw, err := tap.SyscallConn()
	return &tapLink{tap: tap, raw: raw, buf: make([]byte, netstack.MaxFrame+1)}, err
}

func (l *tapLink) ReadFrame() ([]byte, error) {
	n, err := l.tap.Read(l.buf)
	return l.buf[:n], err
}

func (l *tapLink) WriteFrames(b *netstack.Batch) error {
	next := 0
	return l.raw.Write(func(fd uintptr) bool {
		for ; next < b.Len(); next++ {
			// Any other error loses the frame, as a NIC does.
			if _, err := unix.Writev(int(fd), b.Frame(next)); errors.Is(err, unix.EAGAIN) {
				return false
			}
		}
		return true
	})
}

func (l *tapLink) Close() error { return l.tap.Close() }
