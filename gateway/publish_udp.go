package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
)

const (
	// maxInboundUDP bounds the UDP flows of all published ports of a sandbox. Each keeps a buffer for a datagram.
	maxInboundUDP = 512
	// inboundIdle ends a flow without traffic: RFC 4787's REQ-5 minimum for UDP mappings.
	inboundIdle = 2 * time.Minute
	// inboundEvict is how long a flow must have been silent to give way to a new one when there are maxInboundUDP.
	inboundEvict = 10 * time.Second
)

// PublishUDP is Publish for a UDP port: conn's datagrams go to the guest, those of each client from a port of their own of
// the gateway's address, and what the guest answers there goes back. Each client's flow is a line of the audit log when
// nothing has passed for two minutes, or the number of flows is bounded and it was silent for longest.
func PublishUDP(ctx context.Context, g *Gateway, conn *net.UDPConn, port uint16) {
	ctx, cancel := within(ctx, g.ctx)
	defer cancel()
	closed := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer closed()
	p := newUDPPort(g, conn, port)
	defer p.serving.Wait()
	defer cancel() // which ends the flows
	buf, ok := datagrams.Get().(*[]byte)
	if !ok {
		return
	}
	defer datagrams.Put(buf)
	for {
		n, client, err := conn.ReadFromUDPAddrPort(*buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // a client that is gone: an ICMP error of an answer comes here
			continue
		}
		if f := p.flow(ctx, netip.AddrPortFrom(client.Addr().Unmap(), client.Port())); f != nil {
			f.heard(time.Now())
			f.send((*buf)[:n])
		}
	}
}

// udpPort is a published UDP port.
type udpPort struct {
	g       *Gateway
	conn    *net.UDPConn
	port    uint16
	idle    time.Duration
	serving sync.WaitGroup

	mu    sync.Mutex
	flows map[netip.AddrPort]*udpInbound
}

func newUDPPort(g *Gateway, conn *net.UDPConn, port uint16) *udpPort {
	return &udpPort{g: g, conn: conn, port: port, flows: make(map[netip.AddrPort]*udpInbound), idle: inboundIdle}
}

// udpInbound is the datagrams of one client.
type udpInbound struct {
	ev    audit.Event
	begin time.Time
	last  atomic.Int64 // when something passed, in nanoseconds
	sent  atomic.Int64 // when the client sent something last, likewise
	down  atomic.Int64
	// refused tells that the guest answered that nothing listens on the port.
	refused atomic.Bool

	mu    sync.Mutex
	guest net.Conn
	over  bool
	// unanswered are the first datagrams, as long as the server may turn out to listen on loopback only: the guest has
	// refused them then. held is what they take, in bytes.
	unanswered [][]byte
	held       int
	settled    bool // nothing is kept any more

	forwarded bool // by the guest's agent; of the goroutine of answers
}

const (
	// maxUnanswered bounds what a flow keeps of its first datagrams, in bytes. Others are lost, as datagrams may be.
	maxUnanswered = 16 << 10
	// unansweredOverhead is what one takes beside its bytes: without it a client could send empty datagrams that are kept
	// without end.
	unansweredOverhead = 64
)

// heard notes that the client has sent a datagram.
func (f *udpInbound) heard(now time.Time) {
	f.last.Store(now.UnixNano())
	f.sent.Store(now.UnixNano())
}

// send hands a datagram to the guest. The refusal of an earlier one is returned by the next call, once.
func (f *udpInbound) send(b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.guest.Write(b)
	if errors.Is(err, syscall.ECONNREFUSED) {
		f.refused.Store(true)
		_ = f.guest.SetReadDeadline(time.Now()) // for answers to look; its only error is that it is closed
		n, err = f.guest.Write(b)
	}
	if err == nil {
		f.down.Add(int64(n))
		if !f.settled && f.held+n+unansweredOverhead <= maxUnanswered {
			f.unanswered, f.held = append(f.unanswered, bytes.Clone(b)), f.held+n+unansweredOverhead
		}
	}
}

// settle keeps no datagrams any more, and returns those that were.
func (f *udpInbound) settle() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.unanswered
	f.unanswered, f.settled = nil, true
	return kept
}

// conn is the guest's end.
func (f *udpInbound) conn() net.Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.guest
}

// close ends the flow.
func (f *udpInbound) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	_ = f.guest.Close() // its only error is that it is closed already
}

// replace takes another guest's end, and sends it what the one before refused.
func (f *udpInbound) replace(guest net.Conn) {
	kept := f.settle()
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.guest.Close()
	f.guest = guest
	if f.over {
		_ = guest.Close()
		return
	}
	for _, b := range kept {
		_, _ = guest.Write(b) // it may be lost
	}
}

// flow finds or begins the flow of a client; nil if it may have none.
func (p *udpPort) flow(ctx context.Context, client netip.AddrPort) *udpInbound {
	p.mu.Lock()
	f := p.flows[client]
	p.mu.Unlock()
	if f != nil {
		return f
	}
	ev, ok := p.g.inbound.event(egress.UDP, client, p.port)
	if !ok {
		p.g.floods.Emit(ev)
		return nil
	}
	if !p.g.inbound.udp.take(time.Now()) {
		ev.Action, ev.Rule, ev.Reason = egress.Deny.String(), "", egress.ReasonLimit.String()
		ev.Message = "there are as many UDP flows of published ports as there may be"
		p.g.floods.Emit(ev)
		return nil
	}
	f = &udpInbound{ev: ev, begin: time.Now()}
	var err error
	if f.guest, err = p.g.stack.DialGuestUDP(p.g.inbound.source(client.Addr()), p.port); err != nil {
		p.g.inbound.udp.leave(nil)
		f.ev.Message = err.Error()
		p.g.emit(f.ev)
		return nil
	}
	f.heard(f.begin)
	p.g.inbound.udp.join(f)
	p.g.cfg.Capture.admitted(&f.ev, clientOf(f.guest.LocalAddr()), clientOf(f.guest.RemoteAddr()))
	p.mu.Lock()
	p.flows[client] = f
	p.mu.Unlock()
	p.serving.Go(func() {
		p.answers(ctx, f)
		p.mu.Lock()
		delete(p.flows, client)
		p.mu.Unlock()
		p.g.inbound.udp.leave(f)
		p.g.emit(f.ev)
	})
	return f
}

// answers carries what the guest sends to a client, until the flow ends.
func (p *udpPort) answers(ctx context.Context, f *udpInbound) {
	there := func() bool { return time.Since(time.Unix(0, f.sent.Load())) < inboundIdle } // what the guest sends keeps the flow, and is no use
	ctx, done := p.g.inbound.follow(ctx, p.g.inbound.byAddress(egress.UDP, f.ev.Client.Addr()), there)
	defer done()
	stop := context.AfterFunc(ctx, f.close)
	defer stop()
	buf, ok := datagrams.Get().(*[]byte)
	if !ok {
		return
	}
	defer datagrams.Put(buf)
	for {
		guest := f.conn()
		silent := time.Unix(0, f.last.Load()).Add(p.idle)
		_ = guest.SetReadDeadline(silent)
		n, err := 0, error(syscall.ECONNREFUSED)
		elsewhere := p.g.inbound.mayForward(f.ev.Client.Addr()) && !f.forwarded && f.ev.BytesUp == 0 // the server may listen on loopback only
		if !elsewhere || !f.refused.Load() {
			n, err = guest.Read(*buf)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && (time.Unix(0, f.last.Load()).Add(p.idle).After(silent) || time.Now().Before(silent)) {
			continue // its client has sent something meanwhile, or send has set the deadline
		}
		if elsewhere && errors.Is(err, syscall.ECONNREFUSED) {
			if err = p.forward(ctx, f); err == nil {
				continue
			}
		}
		if err == nil {
			f.settle()
			err = p.g.budget.takePacket(n)
		}
		if err != nil {
			p.ended(ctx, f, err)
			return
		}
		f.last.Store(time.Now().UnixNano())
		if w, err := p.conn.WriteToUDPAddrPort((*buf)[:n], f.ev.Client); err == nil { // an answer may be lost
			f.ev.BytesUp += int64(w)
		}
	}
}

// errNowhere ends a flow for which the guest's agent knows no server either.
var errNowhere = errors.New("the guest doesn't answer on this port: nothing listens on its address")

// forward has the guest's agent lead to a server that listens on 127.0.0.1 only.
func (p *udpPort) forward(ctx context.Context, f *udpInbound) error {
	ctx, cancel := context.WithTimeout(ctx, publishedDial)
	defer cancel()
	by, err := p.g.cfg.Forward(ctx, egress.UDP, p.port)
	if err != nil {
		return fmt.Errorf("%w; nor by 127.0.0.1: %w", errNowhere, err)
	}
	guest, err := p.g.stack.DialGuestUDP(p.g.inbound.source(f.ev.Client.Addr()), by)
	if err != nil {
		return err
	}
	f.forwarded = true
	f.replace(guest)
	return nil
}

// ended completes what the audit log says of a flow.
func (p *udpPort) ended(ctx context.Context, f *udpInbound, err error) {
	f.close()
	f.ev.BytesDown, f.ev.Duration = f.down.Load(), time.Since(f.begin)
	switch {
	case errors.Is(context.Cause(ctx), errIngress):
		f.ev.Message = errIngress.Error()
	case errors.Is(err, errBudget), errors.Is(err, errNowhere):
		f.ev.Message = err.Error()
	case errors.Is(err, syscall.ECONNREFUSED), f.refused.Load() && f.ev.BytesUp == 0:
		f.ev.Message = "the guest doesn't answer on this port: nothing listens there, or on 127.0.0.1 only; let it listen on 0.0.0.0"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF):
	default:
		f.ev.Message = err.Error()
	}
}

// udpFlows counts the flows of all published UDP ports.
type udpFlows struct {
	mu    sync.Mutex
	taken int // live, and those that are about to be
	live  map[*udpInbound]struct{}
}

// take asks for room for a flow. Where there is none, the one that was silent for longest makes some.
func (u *udpFlows) take(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.taken < maxInboundUDP {
		u.taken++
		return true
	}
	var oldest *udpInbound
	for f := range u.live {
		if oldest == nil || f.last.Load() < oldest.last.Load() {
			oldest = f
		}
	}
	if oldest == nil || now.Sub(time.Unix(0, oldest.last.Load())) < inboundEvict {
		return false
	}
	delete(u.live, oldest) // its place is the new one's
	oldest.close()
	return true
}

func (u *udpFlows) join(f *udpInbound) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.live == nil {
		u.live = make(map[*udpInbound]struct{})
	}
	u.live[f] = struct{}{}
}

// leave gives the place of a flow back, unless it made room for another; nil is one that never began.
func (u *udpFlows) leave(f *udpInbound) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, live := u.live[f]; live || f == nil {
		delete(u.live, f)
		u.taken--
	}
}
