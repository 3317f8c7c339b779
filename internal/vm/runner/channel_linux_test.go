package runner

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestChannelsHoldALargestMessage: without widen a sender is stopped in the middle of it.
func TestChannelsHoldALargestMessage(t *testing.T) {
	t.Parallel()
	const message = 256 << 10   // the data of the largest message of a directory
	const ordinary = 212992 / 2 // net.core.wmem_default, which the kernel doubles here
	for _, wide := range []bool{false, true} {
		ours, theirs, err := StreamPair("test")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = ours.Close(), theirs.Close() }()
		if wide {
			widen(ours)
		} else if err := ours.(*net.UnixConn).SetWriteBuffer(ordinary); err != nil {
			t.Fatal(err)
		}
		if sent := writeOnce(t, ours, message); wide && sent != message || !wide && sent == message {
			t.Errorf("widened %v: %d of %d bytes went out at once", wide, sent, message)
		}
	}
}

// writeOnce is how much one write(2) takes.
func writeOnce(t *testing.T, c net.Conn, n int) (sent int) {
	t.Helper()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for sent < n { // as much as goes without waiting
			k, err := unix.Write(int(fd), make([]byte, n-sent))
			if err != nil {
				return
			}
			sent += k
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return sent
}
