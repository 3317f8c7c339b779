package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/msb-project/msb/netstack"
)

// udpPath is a flow's socket on the host whose datagrams are not fragmented
// unless the guest let them be, so that path-MTU discovery in the guest finds
// the MTU of the host's path.
type udpPath struct {
	net.Conn                 // metered
	raw      syscall.RawConn // nil where the socket can't be told
	v6       bool
}

// newUDPPath takes conn as it was dialled, and the same conn metered.
func newUDPPath(conn, metered net.Conn, v6 bool) *udpPath {
	p := &udpPath{Conn: metered, v6: v6}
	if u, ok := conn.(*net.UDPConn); ok {
		if raw, err := u.SyscallConn(); err == nil && setFragments(raw, v6, false) == nil {
			p.raw = raw
		}
	}
	return p
}

// isIPv6 tells the family of a socket by its peer, which [hosts] may have chosen.
func isIPv6(conn net.Conn) bool {
	addr, ok := conn.RemoteAddr().(*net.UDPAddr)
	return ok && addr.IP.To4() == nil
}

// send sends what was last read from guest. A datagram that is too big for the
// path and must not be fragmented is answered, and is no error.
func (p *udpPath) send(b []byte, guest *netstack.UDPConn) (sent int, err error) {
	_, err = p.Write(b)
	if p.raw == nil || !errors.Is(err, syscall.EMSGSIZE) {
		return len(b), err
	}
	// The error may be about an earlier datagram: a router on the way reported
	// its MTU. This one was not sent.
	mtu := pathMTU(p.raw, p.v6)
	headers := 20 + 8
	if p.v6 {
		headers = 40 + 8
	}
	if len(b)+headers > mtu && guest.TooBig(mtu) {
		return 0, nil
	}
	if err := setFragments(p.raw, p.v6, true); err != nil {
		return 0, err
	}
	_, err = p.Write(b)
	return len(b), errors.Join(err, setFragments(p.raw, p.v6, false))
}

// Read implements net.Conn. A router's report of its MTU ends no flow.
func (p *udpPath) Read(b []byte) (int, error) {
	for {
		n, err := p.Conn.Read(b)
		if !errors.Is(err, syscall.EMSGSIZE) {
			return n, err
		}
	}
}

// copyUp is copyDatagrams from the guest to the host's path. Nothing that the guest sent after ctx's end leaves.
func copyUp(ctx context.Context, dst *udpPath, src *netstack.UDPConn) (total int64, err error) {
	buf, ok := datagrams.Get().(*[]byte)
	if !ok {
		return 0, io.ErrShortBuffer
	}
	defer datagrams.Put(buf)
	for {
		n, err := src.Read(*buf)
		if err == nil && ctx.Err() != nil {
			err = net.ErrClosed // as when the sockets are closed, a moment later
		}
		if err != nil {
			return total, err
		}
		if n, err = dst.send((*buf)[:n], src); err != nil {
			return total, err
		}
		total += int64(n)
	}
}
