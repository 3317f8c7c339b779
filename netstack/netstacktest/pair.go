package netstacktest

import (
	"net"
	"os"
	"syscall"
	"testing"
)

// Pair returns the two ends of a stream socketpair, as a VMM and the gateway
// hold them.
func Pair(t testing.TB) (gateway, guest net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatalf("socketpair: %v", err)
	}
	return conn(t, fds[0]), conn(t, fds[1])
}

func conn(t testing.TB, fd int) net.Conn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "link")
	defer func() { _ = f.Close() }()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatalf("link: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
