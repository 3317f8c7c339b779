package netstack

import (
	"container/list"
	"context"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/msb-project/msb/netstack/frameguard"
)

const (
	// defaultUDPIdle is RFC 4787's REQ-5 minimum for UDP mappings.
	defaultUDPIdle = 2 * time.Minute
	// defaultDNSIdle: resolvers give up after 5 s, some several times.
	defaultDNSIdle = 30 * time.Second
	// deniedFor is how long a denial is repeated without asking again: short,
	// so that a changed policy is felt.
	deniedFor = 2 * time.Second
	// evictIdle is how long a flow must have been silent to give way to a new
	// one when the table is full.
	evictIdle = 10 * time.Second
	// evictTries is how many of the longest silent flows are looked at.
	evictTries = 8

	dnsPort = 53
)

// udpFlows is the table of UDP flows. No gVisor endpoint exists for them: it
// would take tens of kilobytes for each, and queue before anyone accepted.
type udpFlows struct {
	stack *Stack

	mu     sync.Mutex
	flows  map[stack.TransportEndpointID]*UDPFlow // pending and accepted
	recent list.List                              // the same, last used first
	denied map[stack.TransportEndpointID]denial
}

// denial repeats a verdict for a while.
type denial struct {
	until  time.Time
	silent bool
}

func newUDPFlows(s *Stack) *udpFlows {
	return &udpFlows{
		stack:  s,
		flows:  map[stack.TransportEndpointID]*UDPFlow{},
		denied: map[stack.TransportEndpointID]denial{},
	}
}

// handle sees every datagram, reassembled, on the frame path: it only queues.
func (u *udpFlows) handle(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	hdr := header.UDP(pkt.TransportHeader().Slice())
	ip := pkt.Network()
	length, sum := header.UDPValid(hdr, pkt.Data().Checksum, uint16(pkt.Data().Size()),
		pkt.NetworkProtocolNumber, ip.SourceAddress(), ip.DestinationAddress(), pkt.RXChecksumValidated)
	switch { // of what came in fragments
	case !length:
		u.stack.drop(frameguard.DropHeader, 1)
		return true
	case !sum:
		u.stack.drop(frameguard.DropChecksum, 1)
		return true
	}
	d := datagram{data: pkt.Data().AsRange().Capped(int(hdr.Length()) - header.UDPMinimumSize).ToSlice()}
	if len(d.data) > alwaysFits && indivisible(pkt) {
		d.packet = quote(pkt)
	}
	f, isNew, v := u.lookup(id, pkt)
	switch v {
	case flowRefused:
		u.stack.icmp.send(quote(pkt), adminProhibited)
	case flowDropped:
	case flowKnown:
		f.enqueue(d)
		if isNew {
			go u.serve(f)
		}
	}
	return true
}

type flowVerdict uint8

const (
	flowKnown flowVerdict = iota
	flowRefused
	flowDropped
)

// lookup finds the flow of a datagram or starts one.
func (u *udpFlows) lookup(id stack.TransportEndpointID, pkt *stack.PacketBuffer) (f *UDPFlow, isNew bool, v flowVerdict) {
	now := u.stack.now()
	u.mu.Lock()
	if f := u.flows[id]; f != nil {
		u.recent.MoveToFront(f.element)
		f.lastUsed = now
		f.unanswered++
		u.mu.Unlock()
		return f, false, flowKnown
	}
	if d, ok := u.denied[id]; ok {
		if now.Before(d.until) {
			u.mu.Unlock()
			if d.silent {
				return nil, false, flowDropped
			}
			return nil, false, flowRefused
		}
		delete(u.denied, id)
	}
	if u.stack.ctx.Err() != nil {
		u.mu.Unlock()
		return nil, false, flowDropped
	}
	if len(u.flows) >= u.stack.limits.Load().UDPFlows && !u.evictLocked(now) {
		u.mu.Unlock()
		u.stack.limited(LimitUDPFlows, "udp", addrPort(id.RemoteAddress, id.RemotePort), addrPort(id.LocalAddress, id.LocalPort))
		return nil, false, flowRefused
	}
	f = newUDPFlow(u, id, quote(pkt), now)
	u.flows[id] = f
	f.element = u.recent.PushFront(f)
	u.stack.wg.Add(1)
	u.mu.Unlock()
	return f, true, flowKnown
}

// evictLocked ends a flow that nobody will miss: a DNS query that was answered,
// or the one that was silent for longest.
func (u *udpFlows) evictLocked(now time.Time) bool {
	e := u.recent.Back()
	for i := 0; i < evictTries && e != nil; i++ {
		f := e.Value.(*UDPFlow) // nothing else is put in
		answered := f.dst.Port() == dnsPort && f.unanswered <= 0
		if answered || now.Sub(f.lastUsed) >= evictIdle {
			u.removeLocked(f)
			return true
		}
		e = e.Prev()
	}
	return false
}

// serve runs the Handler for one flow.
func (u *udpFlows) serve(f *UDPFlow) {
	defer u.stack.wg.Done()
	defer f.Reject()
	u.stack.cfg.Handler.HandleUDP(f.ctx, f)
}

// deny remembers a verdict. The table is as large as that of the flows; what
// does not fit is asked again.
func (u *udpFlows) deny(f *UDPFlow, silent bool) {
	now := u.stack.now()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.removeLocked(f)
	if len(u.denied) >= u.stack.limits.Load().UDPFlows {
		for id, d := range u.denied {
			if !now.Before(d.until) {
				delete(u.denied, id)
			}
		}
		if len(u.denied) >= u.stack.limits.Load().UDPFlows {
			return
		}
	}
	u.denied[f.id] = denial{until: now.Add(deniedFor), silent: silent}
}

// remove ends a flow.
func (u *udpFlows) remove(f *UDPFlow) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.removeLocked(f)
}

func (u *udpFlows) removeLocked(f *UDPFlow) {
	if f.element == nil {
		return
	}
	delete(u.flows, f.id)
	u.recent.Remove(f.element)
	f.element = nil
	f.idle.Stop()
	f.cancel()
}

// answered notes traffic to the guest.
func (u *udpFlows) answered(f *UDPFlow) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f.lastUsed = u.stack.now()
	f.unanswered--
	if f.element != nil {
		u.recent.MoveToFront(f.element)
	}
}

// expire ends a flow that was silent for its idle time, or looks again later.
func (u *udpFlows) expire(f *UDPFlow) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if left := f.idleFor - u.stack.now().Sub(f.lastUsed); left > 0 && f.element != nil {
		f.idle.Reset(left)
		return
	}
	u.removeLocked(f)
}

func (u *udpFlows) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.flows)
}

// close ends every flow. None starts after the stack's context has ended.
func (u *udpFlows) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range u.flows {
		u.removeLocked(f)
	}
}

func newUDPFlow(u *udpFlows, id stack.TransportEndpointID, first []byte, now time.Time) *UDPFlow {
	f := &UDPFlow{
		table: u, id: id, first: first, lastUsed: now, unanswered: 1,
		src: addrPort(id.RemoteAddress, id.RemotePort), dst: addrPort(id.LocalAddress, id.LocalPort),
		arrived: make(chan struct{}, 1),
	}
	f.idleFor = u.stack.limits.Load().UDPIdle
	if f.dst.Port() == dnsPort {
		f.idleFor = u.stack.limits.Load().DNSIdle
	}
	f.ctx, f.cancel = context.WithCancel(u.stack.ctx)
	f.idle = time.AfterFunc(f.idleFor, func() { u.expire(f) })
	return f
}

// quoteData is how much of a datagram's payload an ICMP error quotes.
const quoteData = 64

// quote is a copy of the start of a packet, from its IP header on.
func quote(pkt *stack.PacketBuffer) []byte {
	network, transport := pkt.NetworkHeader().Slice(), pkt.TransportHeader().Slice()
	q := make([]byte, 0, len(network)+len(transport)+quoteData)
	q = append(append(q, network...), transport...)
	return append(q, pkt.Data().AsRange().Capped(quoteData).ToSlice()...)
}
