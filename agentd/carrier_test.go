//go:build linux

package agentd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
)

// pair is a rawFile and the descriptor of its other end, which keeps messages apart as /dev/fuse does if kind is
// SOCK_SEQPACKET.
func pair(t *testing.T, kind int) (*rawFile, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newRawFile(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fds[1]) })
	return f, fds[1]
}

// framed is a message of that length and text as it travels over the port.
func framed(number, length uint32, text string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, number)
	return append(binary.LittleEndian.AppendUint32(b, length), text...)
}

func readFull(t *testing.T, fd, length int) []byte {
	t.Helper()
	b := make([]byte, length)
	for got := 0; got < length; {
		n, err := unix.Read(fd, b[got:])
		if n <= 0 || err != nil {
			t.Fatalf("read %d, %v", n, err)
		}
		got += n
	}
	return b
}

// TestCarrierKeepsDirectoriesApart carries messages of two directories both ways, and drops those of none.
func TestCarrierKeepsDirectoriesApart(t *testing.T) {
	t.Parallel()
	// A port gives one buffer at a time, as SOCK_SEQPACKET gives one packet; a stream gives as much as is asked for.
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
		for _, piece := range []int{portBufferBytes, 1000} {
			keepsDirectoriesApart(t, kind, piece)
		}
	}
}

func keepsDirectoriesApart(t *testing.T, kind, piece int) {
	t.Helper()
	port, host := pair(t, kind)
	c := newCarrier(&portReader{rawFile: port})
	ended := make(chan error, 2)
	var devices []*rawFile
	var kernels []int
	for i := range 2 {
		device, kernel := pair(t, unix.SOCK_SEQPACKET)
		devices, kernels = append(devices, device), append(kernels, kernel)
		go func() { ended <- c.carry(uint32(i+1), device) }()
		request := framed(uint32(i+1), 4, "")
		if _, err := unix.Write(kernel, request[4:]); err != nil {
			t.Fatal(err)
		}
		if got := readFull(t, host, len(request)); !bytes.Equal(got, request) {
			t.Errorf("the host got %x, want %x", got, request)
		}
	}
	if err := c.carry(2, devices[0]); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a number twice: %v", err)
	}
	text := make([]byte, 200<<10-4)
	for i := range text {
		text[i] = byte(i * 31 >> 3)
	}
	large := framed(2, 200<<10, string(text))
	sent := bytes.Join([][]byte{framed(7, 8, "none"), framed(1, 7, "one"), large}, nil)
	go func() {
		for len(sent) > 0 {
			n, err := unix.Write(host, sent[:min(len(sent), piece)])
			if err != nil {
				return
			}
			sent = sent[n:]
		}
	}()
	if got := readFull(t, kernels[0], 7); string(got[4:]) != "one" {
		t.Errorf("the first got %q", got)
	}
	if got := readFull(t, kernels[1], len(large)-4); !bytes.Equal(got, large[4:]) {
		t.Errorf("the second got other bytes than the %d that were sent, in pieces of %d", len(got), piece)
	}
	devices[0].stop()
	if err := <-ended; err != nil {
		t.Errorf("a directory that was stopped: %v", err)
	}
	c.mu.Lock()
	if c.devices[1] != nil { // whose descriptor may be another file's by then
		t.Error("replies still go to a directory that was stopped")
	}
	c.mu.Unlock()
	if _, err := unix.Write(kernels[1], framed(0, 8, "last")[4:]); err != nil {
		t.Fatal(err)
	}
	if got := readFull(t, host, 12); string(got[8:]) != "last" {
		t.Errorf("the host got %q", got)
	}
	_ = unix.Shutdown(host, unix.SHUT_RDWR)
	if err := <-ended; err != nil && !errors.Is(err, unix.EPIPE) {
		t.Errorf("a directory whose port ended: %v", err)
	}
}

// TestI11_CarrierBoundsMessages: a length that no message has ends the port and its directories.
func TestI11_CarrierBoundsMessages(t *testing.T) {
	t.Parallel()
	for _, length := range []uint32{0, 3, agentpb.MaxDirectoryMessage + 1, 1<<32 - 1} {
		port, host := pair(t, unix.SOCK_STREAM)
		device, _ := pair(t, unix.SOCK_SEQPACKET)
		c := newCarrier(port)
		ended := make(chan error, 1)
		go func() { ended <- c.carry(1, device) }()
		if _, err := unix.Write(host, framed(1, length, "")); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil && !errors.Is(err, errProtocol) { // which it is where the port ended first
			t.Errorf("%d bytes: %v", length, err)
		}
		if err := c.carry(2, device); !errors.Is(err, errProtocol) {
			t.Errorf("%d bytes, and another directory: %v", length, err)
		}
	}
}

// TestRawFilesEndWithTheStream: the end of a stream isn't a read of nothing, for ever.
func TestRawFilesEndWithTheStream(t *testing.T) {
	t.Parallel()
	f, other := pair(t, unix.SOCK_STREAM)
	_ = unix.Shutdown(other, unix.SHUT_RDWR)
	if n, err := f.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d, %v", n, err)
	}
}

// TestRawFilesWriteAll: a message that is longer than what the other end takes at once goes on where it was cut.
func TestRawFilesWriteAll(t *testing.T) {
	t.Parallel()
	f, other := pair(t, unix.SOCK_STREAM)
	want := content(4 << 20)
	wrote := make(chan error, 1)
	go func() {
		n, err := f.Write(want)
		if err == nil && n != len(want) {
			err = io.ErrShortWrite
		}
		wrote <- err
	}()
	if got := readFull(t, other, len(want)); !bytes.Equal(got, want) {
		t.Error("other bytes came than were written")
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}
