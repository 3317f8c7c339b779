package netstack

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/containers/gvisor-tap-vsock/pkg/transport"
)

// vfkitHello is what vfkit sends first on its datagram socket, and what keeps
// the address of an unbound peer known.
var vfkitHello = []byte("VFKT")

var _ Link = (*DatagramLink)(nil)

// DatagramLink is vfkit's and gvproxy's link: a datagram socket, one frame in
// each message, no prefix.
type DatagramLink struct {
	conn *net.UnixConn
	peer *net.UnixAddr // nil: connected
	buf  []byte
	flat []byte
}

// newDatagramLink takes over a connected datagram socket, such as one end of a
// socketpair.
func newDatagramLink(conn *net.UnixConn) *DatagramLink {
	return &DatagramLink{conn: conn, buf: make([]byte, MaxFrame+1)}
}

// NewDatagramLinkFile is newDatagramLink for a socket given as a file. It takes
// f over.
func NewDatagramLinkFile(f *os.File) (*DatagramLink, error) {
	c, err := net.FileConn(f)
	_ = f.Close() // FileConn works on a duplicate
	if err != nil {
		return nil, fmt.Errorf("netstack: link is not a datagram socket: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("netstack: link is a %T, not a Unix datagram socket", c)
	}
	return newDatagramLink(u), nil
}

// AcceptDatagramLink waits on a bound datagram socket for the first message of
// a VMM, vfkit's hello or a frame, and answers to that sender from then on. It
// takes conn over; what other senders write is dropped.
func AcceptDatagramLink(conn *net.UnixConn) (*DatagramLink, error) {
	// It takes vfkit's hello, leaves a first frame in the socket, and sizes the
	// socket's buffers.
	accepted, err := transport.AcceptVfkit(conn)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("netstack: waiting for a VMM's first message: %w; its socket must have a name to answer to, as vfkit's and libkrun's have", err)
	}
	peer, ok := accepted.RemoteAddr().(*net.UnixAddr)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("netstack: the VMM's address is a %T, not that of a Unix socket", accepted.RemoteAddr())
	}
	l := newDatagramLink(conn)
	l.peer = peer
	return l, nil
}

// ReadFrame implements Link.
func (l *DatagramLink) ReadFrame() ([]byte, error) {
	for {
		n, from, err := l.conn.ReadFromUnix(l.buf)
		if err != nil {
			return nil, err
		}
		if l.peer != nil && (from == nil || from.Name != l.peer.Name) {
			continue
		}
		if bytes.Equal(l.buf[:n], vfkitHello) {
			continue
		}
		return l.buf[:n], nil
	}
}

// WriteFrames implements Link. A frame for which the peer has no room is lost,
// as on a wire.
func (l *DatagramLink) WriteFrames(b *Batch) error {
	for i := range b.Len() {
		l.flat = l.flat[:0]
		for _, p := range b.Frame(i) {
			l.flat = append(l.flat, p...)
		}
		if err := l.writeOne(); err != nil && !errors.Is(err, syscall.ENOBUFS) && !errors.Is(err, syscall.EMSGSIZE) {
			return err
		}
	}
	return nil
}

func (l *DatagramLink) writeOne() (err error) {
	if l.peer != nil {
		_, err = l.conn.WriteToUnix(l.flat, l.peer)
		return err
	}
	_, err = l.conn.Write(l.flat)
	return err
}

// Close implements Link.
func (l *DatagramLink) Close() error { return l.conn.Close() }
