package runner

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// StreamPair makes a connected pair of stream sockets: a connection for this
// process and a descriptor for the VMM.
func StreamPair(name string) (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name)
	conn, err := net.FileConn(ours) // makes a copy of its own
	err = errors.Join(err, ours.Close())
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}

// channelBufferBytes holds the largest message to a guest, with what the kernel counts beside its bytes. The default
// (net.core.wmem_default, 208 KiB) does not, and its sender would be woken several times before the message is out. It
// bounds what a guest that doesn't read keeps of the host's memory.
const channelBufferBytes = 512 << 10

// widen gives a channel that buffer, or as much of it as net.core.wmem_max lets an ordinary user have.
func widen(c net.Conn) {
	if u, ok := c.(*net.UnixConn); ok {
		_ = u.SetWriteBuffer(channelBufferBytes) // without it the channel is slower
	}
}
