package netstack

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Bounds of what a flow queues for a handler that does not read; more is lost,
// as UDP may be.
const (
	udpQueueDatagrams = 128
	udpQueueBytes     = 256 << 10
)

// UDPFlow is the datagrams between one address and port of the guest and one
// destination.
type UDPFlow struct {
	table    *udpFlows
	id       stack.TransportEndpointID
	src, dst netip.AddrPort
	ctx      context.Context // the flow is the carrier of its own life
	cancel   context.CancelFunc
	first    []byte // quoted by Reject
	idleFor  time.Duration
	idle     *time.Timer

	// Guarded by table.mu.
	element    *list.Element // nil once ended
	lastUsed   time.Time
	unanswered int // datagrams from the guest minus those to it

	mu      sync.Mutex
	decided bool
	queue   []datagram
	queued  int // bytes
	drained bool
	arrived chan struct{}
}

// Src is the guest's address and port.
func (f *UDPFlow) Src() netip.AddrPort { return f.src }

// Dst is the address and port that the guest sends to.
func (f *UDPFlow) Dst() netip.AddrPort { return f.dst }

// Accept starts the flow; the datagram that began it is the first to be read.
// It ends by Close, or when nothing passed for the idle time of Limits: reads
// then return io.EOF.
func (f *UDPFlow) Accept() (*UDPConn, error) {
	if !f.decide() || f.ctx.Err() != nil {
		return nil, ErrFlowDone
	}
	return newUDPConn(f)
}

// Reject answers this and, for two seconds and at a bounded rate, later
// datagrams with ICMP administratively prohibited, which clients feel at once.
// It does nothing after Accept.
func (f *UDPFlow) Reject() {
	if f.decide() {
		f.table.deny(f, false)
		f.table.stack.icmp.send(f.first, adminProhibited)
	}
}

// Drop ignores this and, for two seconds, later datagrams.
func (f *UDPFlow) Drop() {
	if f.decide() {
		f.table.deny(f, true)
	}
}

// decide is true for the first of Accept, Reject and Drop.
func (f *UDPFlow) decide() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.decided
	f.decided = true
	return !was
}

// enqueue hands a datagram to the reader and never blocks.
func (f *UDPFlow) enqueue(d datagram) {
	f.mu.Lock()
	if f.drained || len(f.queue) >= udpQueueDatagrams || f.queued+len(d.data) > udpQueueBytes {
		f.mu.Unlock()
		f.table.stack.limited(LimitUDPQueue, "udp", f.src, f.dst)
		return
	}
	f.queue = append(f.queue, d)
	f.queued += len(d.data)
	f.mu.Unlock()
	select {
	case f.arrived <- struct{}{}:
	default:
	}
}

// Drain returns how many datagrams nobody has read. Later ones find no room.
func (f *UDPFlow) Drain() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.queue)
	f.queue, f.queued, f.drained = nil, 0, true
	return n
}

// dequeue takes the oldest datagram.
func (f *UDPFlow) dequeue() (datagram, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return datagram{}, false
	}
	d := f.queue[0]
	f.queue[0] = datagram{}
	f.queue = f.queue[1:]
	if len(f.queue) == 0 {
		f.queue = nil // an idle flow keeps no array
	}
	f.queued -= len(d.data)
	return d, true
}
