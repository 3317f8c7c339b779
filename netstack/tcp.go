package netstack

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/seqnum"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/msb-project/msb/netstack/frameguard"
)

// forwarderInFlight is gVisor's own cap, above which it drops SYNs silently. It
// is never reached: our lower bound answers with RST.
const forwarderInFlight = 1 << 20

// closeLinger is how long a closed connection may wait for the guest to take
// what is left.
const closeLinger = time.Minute

// tcpFlows hands SYNs to the Handler and counts connections.
type tcpFlows struct {
	stack *Stack
	fwd   *tcp.Forwarder

	mu      sync.Mutex
	pending map[stack.TransportEndpointID]*TCPFlow // SYN seen, neither accepted nor rejected
	live    map[*TCPFlow]struct{}
	inbound map[*TCPFlow]struct{} // those of DialGuest
	// lingering are those of live and inbound that were closed on our side while the guest
	// still owes acknowledgements or its FIN.
	lingering map[*TCPFlow]lingerer
}

type lingerer struct {
	ep    tcpip.Endpoint
	timer *time.Timer
}

func newTCPFlows(s *Stack) *tcpFlows {
	t := &tcpFlows{stack: s, pending: map[stack.TransportEndpointID]*TCPFlow{}, live: map[*TCPFlow]struct{}{}, inbound: map[*TCPFlow]struct{}{}, lingering: map[*TCPFlow]lingerer{}}
	t.fwd = tcp.NewForwarder(s.net, 0, forwarderInFlight, t.serve)
	return t
}

// handle sees every segment that belongs to no connection. False makes gVisor
// answer with RST.
func (t *tcpFlows) handle(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	hdr := header.TCP(pkt.TransportHeader().Slice())
	if len(hdr) < header.TCPMinimumSize {
		t.stack.drop(frameguard.DropHeader, 1)
		return true
	}
	ip := pkt.Network()
	if !pkt.RXChecksumValidated && !hdr.IsChecksumValid(ip.SourceAddress(), ip.DestinationAddress(), pkt.Data().Checksum(), uint16(pkt.Data().Size())) {
		t.stack.drop(frameguard.DropChecksum, 1)
		return true
	}
	flags := hdr.Flags()
	switch {
	case flags.Contains(header.TCPFlagRst):
		if !t.giveUp(id, seqnum.Value(hdr.SequenceNumber())) && flags.Contains(header.TCPFlagSyn) {
			t.stack.drop(frameguard.DropStray, 1)
		}
		return true
	case !flags.Contains(header.TCPFlagSyn) || flags.Contains(header.TCPFlagAck):
		t.stack.drop(frameguard.DropStray, 1)
		return false
	}
	f, verdict := t.reserve(id, seqnum.Value(hdr.SequenceNumber()))
	switch verdict {
	case reserveKnown:
		return true // the guest repeats its SYN while the handler thinks
	case reserveFull:
		return false
	case reserved:
	}
	if !t.fwd.HandlePacket(id, pkt) {
		t.settled(f)
		t.release(f)
		t.stack.wg.Done()
		return false
	}
	return true
}

type reservation uint8

const (
	reserved reservation = iota
	reserveKnown
	reserveFull
)

// reserve takes a slot for a new connection.
func (t *tcpFlows) reserve(id stack.TransportEndpointID, syn seqnum.Value) (*TCPFlow, reservation) {
	f := &TCPFlow{stack: t.stack, id: id, syn: syn, src: addrPort(id.RemoteAddress, id.RemotePort), dst: addrPort(id.LocalAddress, id.LocalPort)}
	limit := LimitKind("")
	t.mu.Lock()
	if _, ok := t.pending[id]; ok {
		t.mu.Unlock()
		return nil, reserveKnown
	}
	if len(t.live) >= t.stack.limits.Load().TCPConnections {
		t.sweepLocked()
	}
	switch {
	case t.stack.ctx.Err() != nil:
		t.mu.Unlock()
		return nil, reserveFull
	case len(t.live) >= t.stack.limits.Load().TCPConnections:
		limit = LimitTCPConnections
	case len(t.pending) >= t.stack.limits.Load().TCPInFlight:
		limit = LimitTCPInFlight
	default:
		f.ctx, f.cancel = context.WithCancel(t.stack.ctx)
		t.pending[id] = f
		t.live[f] = struct{}{}
		t.stack.wg.Add(1)
	}
	t.mu.Unlock()
	if limit != "" {
		t.stack.limited(limit, "tcp", f.src, f.dst)
		return nil, reserveFull
	}
	return f, reserved
}

// serve runs the Handler for one SYN, on the forwarder's goroutine.
func (t *tcpFlows) serve(req *tcp.ForwarderRequest) {
	t.mu.Lock()
	f := t.pending[req.ID()]
	t.mu.Unlock()
	if f == nil {
		req.Complete(true)
		return
	}
	defer t.stack.wg.Done()
	f.mu.Lock()
	f.req = req
	f.mu.Unlock()
	defer f.finish()
	t.stack.cfg.Handler.HandleTCP(f.ctx, f)
}

// giveUp cancels a flow whose guest sent RST before it was accepted, and reports whether there is one. A late RST of
// an earlier connection from the same port has another sequence number (RFC 9293, section 3.10.7.4) and cancels nothing.
func (t *tcpFlows) giveUp(id stack.TransportEndpointID, seq seqnum.Value) bool {
	t.mu.Lock()
	f := t.pending[id]
	t.mu.Unlock()
	if f != nil && seq == f.syn+1 {
		f.cancel()
	}
	return f != nil
}

// settled takes a flow out of those in flight.
func (t *tcpFlows) settled(f *TCPFlow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending[f.id] == f {
		delete(t.pending, f.id)
	}
}

// release gives the slot of a flow back; more than once is harmless.
func (t *tcpFlows) release(f *TCPFlow) {
	t.mu.Lock()
	t.releaseLocked(f)
	t.mu.Unlock()
}

func (t *tcpFlows) releaseLocked(f *TCPFlow) {
	delete(t.live, f)
	delete(t.inbound, f)
	if l, ok := t.lingering[f]; ok {
		l.timer.Stop()
		delete(t.lingering, f)
	}
	f.cancel()
}

// linger keeps the slot of a closed connection until its endpoint is gone, so
// that connections whose guest never acknowledges stay bounded: after
// closeLinger they are reset.
func (t *tcpFlows) linger(f *TCPFlow, ep tcpip.Endpoint) {
	f.cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if finished(ep) || t.stack.ctx.Err() != nil {
		t.releaseLocked(f)
		return
	}
	t.lingering[f] = lingerer{ep: ep, timer: time.AfterFunc(closeLinger, func() {
		ep.Abort()
		t.release(f)
	})}
}

// sweepLocked gives back the slots of connections that are finished by now.
func (t *tcpFlows) sweepLocked() {
	for f, l := range t.lingering {
		if finished(l.ep) {
			t.releaseLocked(f)
		}
	}
}

// finished says whether an endpoint needs nothing from the guest any more.
func finished(ep tcpip.Endpoint) bool {
	switch tcp.EndpointState(ep.State()) { //nolint:exhaustive // every other state waits for the guest
	case tcp.StateClose, tcp.StateError, tcp.StateTimeWait, tcp.StateInitial:
		return true
	}
	return false
}

// closeAll stops the timers of what lingers.
func (t *tcpFlows) closeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for f := range t.lingering {
		t.releaseLocked(f)
	}
}

// barrier returns when no flow is being started; with the stack's context ended
// none is afterwards.
func (t *tcpFlows) barrier() {
	t.mu.Lock()
	defer t.mu.Unlock()
}

func (t *tcpFlows) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweepLocked()
	return len(t.live)
}

// addrPort converts gVisor's address.
func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return netip.AddrPortFrom(addr, port)
}
