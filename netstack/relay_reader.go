package netstack

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// lazyReader reads from a connection into a buffer that it borrows only when
// there is something to read. Connections without a descriptor keep theirs.
type lazyReader struct {
	conn net.Conn
	raw  syscall.RawConn // nil: no descriptor
	pool *sync.Pool

	attempt func(fd uintptr) bool // made once: a closure for each read is an allocation
	buf     *[]byte
	n       int
	err     error
}

func newLazyReader(c net.Conn, pool *sync.Pool) *lazyReader {
	l := &lazyReader{conn: c, pool: pool}
	if t, ok := c.(*net.TCPConn); ok { // not for wrappers: their Read means something
		l.raw, _ = t.SyscallConn()
	}
	l.attempt = l.try
	return l
}

// try is one attempt without blocking; false waits until there is more.
func (l *lazyReader) try(fd uintptr) bool {
	l.buf = l.pool.Get().(*[]byte) // the pool holds nothing else
	for {
		l.n, l.err = syscall.Read(int(fd), *l.buf)
		if !errors.Is(l.err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(l.err, syscall.EAGAIN) {
		l.pool.Put(l.buf)
		l.buf = nil
		return false
	}
	return true
}

// read returns a buffer with n bytes; give it back with done.
func (l *lazyReader) read() (*[]byte, int, error) {
	if l.raw == nil {
		buf := l.pool.Get().(*[]byte) // the pool holds nothing else
		n, err := l.conn.Read(*buf)
		return buf, n, err
	}
	l.buf = nil
	if err := l.raw.Read(l.attempt); err != nil {
		return l.buf, 0, err
	}
	switch {
	case l.err != nil:
		return l.buf, 0, &net.OpError{Op: "read", Net: "tcp", Source: l.conn.LocalAddr(), Addr: l.conn.RemoteAddr(), Err: os.NewSyscallError("read", l.err)}
	case l.n == 0:
		return l.buf, 0, io.EOF
	}
	return l.buf, l.n, nil
}

func (l *lazyReader) done(buf *[]byte) {
	if buf != nil {
		l.pool.Put(buf)
	}
}
