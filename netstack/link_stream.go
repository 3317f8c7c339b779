package netstack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// prefixLen is the length prefix of QEMU's stream netdev and libkrun's
	// unixstream: 4 bytes, big-endian, not counting itself.
	prefixLen = 4
	// maxSkip bounds a frame that is read past instead of kept. A prefix above
	// it is no frame of any VMM but a broken stream.
	maxSkip = 1 << 20
	// readBufferSize takes several frames in one system call, which is where
	// most of the CPU goes.
	readBufferSize = 4 * MaxFrame
)

// ErrFraming ends a stream link whose peer wrote a length that no VMM writes:
// what follows can't be told apart any more.
var ErrFraming = errors.New("netstack: length prefix is not that of a frame; is the peer a QEMU stream netdev or a libkrun unixstream?")

var (
	_ Link      = (*StreamLink)(nil)
	_ tryWriter = (*StreamLink)(nil)
	_ readAhead = (*StreamLink)(nil)
)

// StreamLink is the framing of QEMU's stream netdev and libkrun's unixstream.
type StreamLink struct {
	conn io.ReadWriteCloser

	buf  []byte
	r, w int // buf[r:w] was read and not returned yet

	prefixes []byte
	iov      net.Buffers // what is left of a write; a field, so that it does not escape again
	iovArray [][]byte

	raw        syscall.RawConn // nil: conn has no descriptor
	attempt    func(fd uintptr) bool
	attemptErr error
}

// NewStreamLink takes conn over. Sockets (net.Conn) use the runtime's poller
// and writev.
func NewStreamLink(conn io.ReadWriteCloser) *StreamLink {
	l := &StreamLink{conn: conn, buf: make([]byte, readBufferSize)}
	if c, ok := conn.(syscall.Conn); ok {
		l.raw, _ = c.SyscallConn()
	}
	l.attempt = l.attemptOnce
	return l
}

// NewStreamLinkFile is NewStreamLink for a socket given as a file, such as one
// end of a socketpair. It takes f over.
func NewStreamLinkFile(f *os.File) (*StreamLink, error) {
	conn, err := net.FileConn(f)
	_ = f.Close() // FileConn works on a duplicate
	if err != nil {
		return nil, fmt.Errorf("netstack: link is not a stream socket: %w", err)
	}
	return NewStreamLink(conn), nil
}

// ReadFrame implements Link.
func (l *StreamLink) ReadFrame() ([]byte, error) {
	if err := l.fill(prefixLen); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(l.buf[l.r:]))
	if n > maxSkip {
		return nil, fmt.Errorf("%w: %d bytes", ErrFraming, n)
	}
	l.r += prefixLen
	keep := min(int(n), MaxFrame+1)
	if err := l.fill(keep); err != nil {
		return nil, noEOF(err)
	}
	frame := l.buf[l.r : l.r+keep : l.r+keep]
	l.r += keep
	if rest := int(n) - keep; rest > 0 {
		frame = append([]byte(nil), frame...) // skip reads over the buffer
		return frame, l.skip(rest)
	}
	return frame, nil
}

// ready implements readAhead.
func (l *StreamLink) ready() bool {
	if l.w-l.r < prefixLen {
		return false
	}
	n := int64(binary.BigEndian.Uint32(l.buf[l.r:]))
	return n <= MaxFrame && int64(l.w-l.r-prefixLen) >= n
}

// fill makes buf[r:r+n] valid.
func (l *StreamLink) fill(n int) error {
	if l.w-l.r >= n {
		return nil
	}
	if l.r == l.w {
		l.r, l.w = 0, 0
	} else if len(l.buf)-l.r < n {
		l.w = copy(l.buf, l.buf[l.r:l.w])
		l.r = 0
	}
	for l.w-l.r < n {
		m, err := l.conn.Read(l.buf[l.w:])
		l.w += m
		if err != nil && l.w-l.r < n {
			if l.w > l.r {
				err = noEOF(err)
			}
			return err
		}
	}
	return nil
}

// skip reads past n bytes.
func (l *StreamLink) skip(n int) error {
	for n > 0 {
		step := min(n, MaxFrame)
		if err := l.fill(step); err != nil {
			return noEOF(err)
		}
		l.r += step
		n -= step
	}
	return nil
}

// noEOF marks the end of a stream inside a frame.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// WriteFrames implements Link: all frames in as few system calls as the kernel
// takes.
func (l *StreamLink) WriteFrames(b *Batch) error {
	l.prepare(b)
	return l.flush()
}

// prepare puts prefixes and parts in a row.
func (l *StreamLink) prepare(b *Batch) {
	if need := b.Len() * prefixLen; cap(l.prefixes) < need {
		l.prefixes = make([]byte, need)
	}
	l.iovArray = l.iovArray[:0]
	for i := range b.Len() {
		prefix := l.prefixes[i*prefixLen : (i+1)*prefixLen]
		l.iovArray = append(l.iovArray, prefix)
		size := 0
		for _, p := range b.Frame(i) {
			size += len(p)
			l.iovArray = append(l.iovArray, p)
		}
		binary.BigEndian.PutUint32(prefix, uint32(size))
	}
	l.iov = l.iovArray
}

// flush implements tryWriter: it writes what is left, blocking.
func (l *StreamLink) flush() error {
	_, err := l.iov.WriteTo(l.conn)
	return err
}

// tryWriteFrames implements tryWriter.
func (l *StreamLink) tryWriteFrames(b *Batch) (bool, error) {
	l.prepare(b)
	if l.raw == nil {
		return false, nil
	}
	if err := l.raw.Write(l.attempt); err != nil {
		return false, err
	}
	return len(l.iov) == 0, l.attemptErr
}

// maxIovec is the kernel's bound on parts in one call (IOV_MAX).
const maxIovec = 1024

// attemptOnce makes one call that does not block, and takes what it wrote off
// iov.
func (l *StreamLink) attemptOnce(fd uintptr) bool {
	l.attemptErr = nil
	n, err := unix.Writev(int(fd), l.iov[:min(len(l.iov), maxIovec)])
	if err != nil {
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			l.attemptErr = err
		}
		return true
	}
	for n > 0 && len(l.iov) > 0 {
		if n < len(l.iov[0]) {
			l.iov[0] = l.iov[0][n:]
			return true
		}
		n -= len(l.iov[0])
		l.iov = l.iov[1:]
	}
	return true
}

// Close implements Link.
func (l *StreamLink) Close() error { return l.conn.Close() }
