package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/netstack"
)

// maxDatagram is the largest UDP payload (RFC 768: 65,535 less its header).
const maxDatagram = 65535 - 8

// HandleUDP implements netstack.Handler.
func (g *Gateway) HandleUDP(ctx context.Context, u *netstack.UDPFlow) {
	ctx, f, step := g.open(ctx, egress.UDP, u.Src(), u.Dst())
	defer f.forget()
	if step.Action == session.Wait {
		step = f.wait()
	}
	f.verdicts(&step)
	switch step.Action {
	case session.ToDNS:
		if conn, err := u.Accept(); err == nil {
			g.guard.ServeUDP(ctx, conn)
			_ = conn.Close()
		}
		for range u.Drain() {
			g.guard.Unread("udp", u.Src(), u.Dst())
		}
	case session.Drop:
		u.Drop()
	case session.Dial:
		g.relayUDP(ctx, u, f)
	case session.Reject, session.Refuse, session.NeedBytes, session.NeedNames, session.Wait, session.Relay,
		session.Inspect, session.Continue, session.End:
		u.Reject()
	}
}

func (g *Gateway) relayUDP(ctx context.Context, u *netstack.UDPFlow, f *flow) {
	done := f.admit(ctx)
	conn, err := g.dial(ctx, f.judged(), false)
	if step := f.dialed(err); step.Action != session.Relay {
		u.Reject()
		if err == nil { // a reload ended it meanwhile
			err = conn.Close()
		}
		done(0, 0, err)
		return
	}
	upstream := newUDPPath(conn, g.budget.wrapPackets(conn), isIPv6(conn))
	guest, err := u.Accept()
	if err != nil {
		done(0, 0, errors.Join(err, upstream.Close()))
		return
	}
	end := func() { _ = guest.Close(); _ = upstream.Close() }
	stop := context.AfterFunc(ctx, end)
	defer stop()
	var wg sync.WaitGroup
	var up int64
	wg.Go(func() {
		up, err = copyUp(ctx, upstream, guest)
		end()
	})
	down, _ := copyDatagrams(guest, upstream) // ends when either side is closed: by idleness or ctx
	end()
	wg.Wait()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		err = nil
	}
	done(up, down, err)
}

var datagrams = sync.Pool{New: func() any { b := make([]byte, maxDatagram); return &b }}

// copyDatagrams copies until src or dst fails. A destination that refuses one datagram (ICMP
// port-unreachable arrives as an error of the next call) ends the flow: the guest's next datagram
// starts another.
func copyDatagrams(dst io.Writer, src io.Reader) (total int64, err error) {
	buf, ok := datagrams.Get().(*[]byte)
	if !ok {
		return 0, io.ErrShortBuffer
	}
	defer datagrams.Put(buf)
	for {
		n, err := src.Read(*buf)
		if err != nil {
			return total, err
		}
		if _, err := dst.Write((*buf)[:n]); err != nil {
			return total, err
		}
		total += int64(n)
	}
}
