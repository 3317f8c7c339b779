package netstack

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// maxDatagram is the largest UDP payload in an IPv4 packet.
const maxDatagram = 65535 - header.IPv4MinimumSize - header.UDPMinimumSize

var _ net.Conn = (*UDPConn)(nil)

// UDPConn carries one datagram for each Read and Write. A Read into a slice
// that is too small loses the rest, as with sockets.
type UDPConn struct {
	flow  *UDPFlow
	mu    sync.RWMutex
	route *stack.Route // nil once closed; it keeps gVisor's state for the address alive
	read  deadline
	write deadline
	last  datagram // without its data: what TooBig answers
}

func newUDPConn(f *UDPFlow) (*UDPConn, error) {
	proto := header.IPv4ProtocolNumber
	if f.dst.Addr().Is6() {
		proto = header.IPv6ProtocolNumber
	}
	r, terr := f.table.stack.net.FindRoute(nicID, f.id.LocalAddress, f.id.RemoteAddress, proto, false)
	if terr != nil {
		f.table.remove(f)
		return nil, &handshakeError{dst: f.dst, err: translate(terr)}
	}
	return &UDPConn{flow: f, route: r, read: makeDeadline(), write: makeDeadline()}, nil
}

// Read implements net.Conn.
func (c *UDPConn) Read(b []byte) (int, error) {
	for {
		if c.read.expired() {
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		}
		if d, ok := c.flow.dequeue(); ok {
			c.last.packet = d.packet
			return copy(b, d.data), nil
		}
		select {
		case <-c.flow.arrived:
		case <-c.read.wait():
		case <-c.flow.ctx.Done():
			return 0, io.EOF
		}
	}
}

// Write implements net.Conn.
func (c *UDPConn) Write(b []byte) (int, error) {
	switch {
	case c.flow.ctx.Err() != nil:
		return 0, c.opError("write", net.ErrClosed)
	case c.write.expired():
		return 0, c.opError("write", os.ErrDeadlineExceeded)
	case len(b) > maxDatagram:
		return 0, c.opError("write", syscall.EMSGSIZE)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.route == nil {
		return 0, c.opError("write", net.ErrClosed)
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		ReserveHeaderBytes: int(c.route.MaxHeaderLength()) + header.UDPMinimumSize,
		Payload:            buffer.MakeWithData(b),
	})
	defer pkt.DecRef()
	pkt.TransportProtocolNumber = header.UDPProtocolNumber
	hdr := header.UDP(pkt.TransportHeader().Push(header.UDPMinimumSize))
	length := uint16(pkt.Size())
	hdr.Encode(&header.UDPFields{SrcPort: c.flow.dst.Port(), DstPort: c.flow.src.Port(), Length: length})
	sum := checksum.Combine(c.route.PseudoHeaderChecksum(header.UDPProtocolNumber, length), pkt.Data().Checksum())
	hdr.SetChecksum(^hdr.CalculateChecksum(sum))
	if hdr.Checksum() == 0 {
		hdr.SetChecksum(0xffff) // 0 would mean that there is none (RFC 768)
	}
	terr := c.route.WritePacket(stack.NetworkHeaderParams{Protocol: header.UDPProtocolNumber, TTL: gatewayTTL, TOS: stack.DefaultTOS}, pkt)
	if _, full := terr.(*tcpip.ErrNoBufferSpace); terr != nil && !full {
		return 0, c.opError("write", translate(terr))
	}
	c.flow.table.answered(c.flow)
	return len(b), nil
}

// Close ends the flow; a later datagram starts another.
func (c *UDPConn) Close() error {
	c.flow.table.remove(c.flow)
	c.read.set(time.Time{})
	c.write.set(time.Time{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.route != nil {
		c.route.Release()
		c.route = nil
	}
	return nil
}

// LocalAddr is the address that the guest sends to.
func (c *UDPConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(c.flow.dst) }

// RemoteAddr is the guest's address.
func (c *UDPConn) RemoteAddr() net.Addr { return net.UDPAddrFromAddrPort(c.flow.src) }

// SetDeadline implements net.Conn.
func (c *UDPConn) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *UDPConn) SetReadDeadline(t time.Time) error { c.read.set(t); return nil }

// SetWriteDeadline implements net.Conn.
func (c *UDPConn) SetWriteDeadline(t time.Time) error { c.write.set(t); return nil }

func (c *UDPConn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "udp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
