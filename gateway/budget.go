package gateway

import (
	"errors"
	"net"
	"sync/atomic"
)

// errBudget ends flows once [limits] egress_bytes are used up.
var errBudget = errors.New("[limits] egress_bytes is used up")

// packetCost is what each DNS question, datagram, echo request and attempt to connect takes from the budget
// beside its payload: even an empty one carries information by where and when it goes. It is the smallest frame
// of Ethernet.
const packetCost = 64

// budget counts what a sandbox sends, all flows together, against [limits] egress_bytes.
type budget struct {
	limit, used atomic.Int64
}

// set changes the limit and keeps the count: a reload must not give the bytes back.
func (b *budget) set(limit int64) { b.limit.Store(limit) }

// spent reports whether nothing more may be sent.
func (b *budget) spent() bool {
	limit := b.limit.Load()
	return limit > 0 && b.used.Load() >= limit
}

// takePacket asks for one packet with n bytes in it.
func (b *budget) takePacket(n int) error { return b.take(packetCost + n) }

// take asks for n bytes.
func (b *budget) take(n int) error {
	used := b.used.Add(int64(n))
	if limit := b.limit.Load(); limit > 0 && used > limit {
		return errBudget
	}
	return nil
}

// wrap meters a connection, limit or not: one may come with a reload.
func (b *budget) wrap(c net.Conn) net.Conn { return &meteredConn{Conn: c, take: b.take} }

// wrapPackets is wrap for a connection of which each write is a packet.
func (b *budget) wrapPackets(c net.Conn) net.Conn { return &meteredConn{Conn: c, take: b.takePacket} }

// meteredConn takes what is written from the budget before it is sent.
type meteredConn struct {
	net.Conn
	take func(n int) error
}

// Write implements net.Conn.
func (c *meteredConn) Write(p []byte) (int, error) {
	if err := c.take(len(p)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// CloseWrite passes the half-close on where the connection has one.
func (c *meteredConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetLinger lets a reset reach the connection below.
func (c *meteredConn) SetLinger(sec int) error {
	if l, ok := c.Conn.(interface{ SetLinger(int) error }); ok {
		return l.SetLinger(sec)
	}
	return nil
}
