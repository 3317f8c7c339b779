package dnsguard

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/msb-project/msb/dnsguard/wire"
)

// ServeUDP answers the queries of one UDP flow of the guest, to whatever address
// it was: each Read of conn gives one datagram. A flow may carry several queries
// at once, as glibc asks for A and AAAA from one socket. It returns when nothing
// came for 30 s, when conn fails, when ctx ends or the guard is closed, and
// closes conn.
func (g *Guard) ServeUDP(ctx context.Context, conn net.Conn) {
	ctx, cancel := g.underGuard(ctx)
	defer cancel()
	defer cutOnDone(ctx, conn)()
	s := &session{g: g, ends: endsOf("udp", conn), udp: true}
	defer func() {
		_ = conn.Close()
		s.leave()
	}()
	buf, out := make([]byte, maxQuery+1), make([]byte, 0, wire.MaxUDP)
	q := new(wire.Question)
	onReply := func(answer []byte) { _, _ = conn.Write(answer) } // one that is lost is asked for again
	var deadline time.Duration
	for {
		// Renewing the deadline costs more than a cached answer does.
		if now := g.clock(); now > deadline-idleTimeout+time.Second {
			deadline = now + idleTimeout
			if conn.SetReadDeadline(time.Now().Add(idleTimeout)) != nil {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		if answer, _ := s.answerNow(buf[:n], out, q, onReply); answer != nil {
			if _, err := conn.Write(answer); errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}
}
