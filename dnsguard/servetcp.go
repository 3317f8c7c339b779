package dnsguard

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/msb-project/msb/dnsguard/wire"
)

// ServeTCP answers the queries of one TCP connection of the guest, to whatever
// address it was: each after its length, several at once, answered in the order
// in which answers come (RFC 7766). It returns when nothing came for 30 s, when
// the guest doesn't read its answers for 10 s, when conn fails, when ctx ends or
// the guard is closed, and closes conn. A connection that ends before a question
// was read, or in the middle of one, has an audit event like a question.
func (g *Guard) ServeTCP(ctx context.Context, conn net.Conn) {
	select {
	case g.tcp <- struct{}{}:
		defer func() { <-g.tcp }()
	default:
		g.stats.tcpRefused.Add(1)
		g.limited("more connections to the resolver than it serves at once", endsOf("tcp", conn))
		_ = conn.Close()
		return
	}
	ctx, cancel := g.underGuard(ctx)
	defer cancel()
	defer cutOnDone(ctx, conn)()
	t := &tcpSession{
		session:  session{g: g, ends: endsOf("tcp", conn)},
		ctx:      ctx,
		conn:     conn,
		pipeline: make(chan struct{}, maxPipelined),
		cancel:   cancel,
	}
	if unread := t.serve(); unread {
		g.Unread("tcp", addrPortOf(conn.RemoteAddr()), addrPortOf(conn.LocalAddr()))
	}
	_ = t.finish()
}

// tcpSession is one connection. Answers are written by whoever has one, a
// framed message in one Write.
type tcpSession struct {
	session
	ctx      context.Context // ends with the connection
	conn     net.Conn
	pipeline chan struct{} // a slot for each question that has no answer yet
	cancel   context.CancelFunc

	writing sync.Mutex
}

// serve reads queries until the connection ends. It reports whether there were bytes that no event of a query
// accounts for, or none at all.
func (t *tcpSession) serve() (unread bool) {
	var length [2]byte
	buf := make([]byte, maxQuery)
	var out []byte
	q := new(wire.Question)
	for first := true; ; first = false {
		if t.ctx.Err() != nil || t.conn.SetReadDeadline(time.Now().Add(idleTimeout)) != nil {
			return first
		}
		// Looked at again: the deadline just set may have undone a cut.
		if t.ctx.Err() != nil {
			return first
		}
		if n, err := io.ReadFull(t.conn, length[:]); err != nil {
			return first || n > 0
		}
		n := int(binary.BigEndian.Uint16(length[:]))
		if n > len(buf) {
			return true // no query is that long; what follows can't be trusted
		}
		if _, err := io.ReadFull(t.conn, buf[:n]); err != nil {
			return true
		}
		select {
		case t.pipeline <- struct{}{}:
		case <-t.ctx.Done():
			return true
		}
		if !t.one(buf[:n], &out, q) {
			return false
		}
	}
}

// one answers one query, now or later, and reports whether the connection is
// still good.
func (t *tcpSession) one(packet []byte, out *[]byte, q *wire.Question) bool {
	answer, pending := t.answerNow(packet, *out, q, func(answer []byte) {
		t.write(answer)
		<-t.pipeline
	})
	if pending {
		return true
	}
	<-t.pipeline
	if answer == nil {
		return true
	}
	*out = answer[:0]
	return t.write(answer)
}

// write sends one answer and reports whether it went out. One that didn't ends
// the connection.
func (t *tcpSession) write(answer []byte) bool {
	framed := make([]byte, 2, 2+len(answer))
	binary.BigEndian.PutUint16(framed, uint16(len(answer)))
	framed = append(framed, answer...)
	t.writing.Lock()
	defer t.writing.Unlock()
	_ = t.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := t.conn.Write(framed); err != nil {
		t.cancel()
		return false
	}
	return true
}

// finish lets answers under way go out, then closes.
func (t *tcpSession) finish() error {
	for range maxPipelined {
		select {
		case t.pipeline <- struct{}{}: // one less is under way
		case <-t.ctx.Done():
		}
	}
	t.cancel()
	err := t.conn.Close()
	t.leave()
	return err
}
