package netstack

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip/seqnum"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// ErrFlowDone is returned by Accept after Accept, Reject or Drop, or after the
// guest gave up.
var ErrFlowDone = errors.New("netstack: flow was already accepted, rejected or given up")

// TCPFlow is a connection that the guest asked for with a SYN that was not
// answered yet.
type TCPFlow struct {
	stack    *Stack
	id       stack.TransportEndpointID
	syn      seqnum.Value // its SYN's sequence number
	src, dst netip.AddrPort
	small    bool            // its buffers are
	ctx      context.Context // the flow is the carrier of its own life
	cancel   context.CancelFunc

	mu   sync.Mutex
	req  *tcp.ForwarderRequest // nil once completed
	conn *TCPConn
}

// Src is the guest's address and port.
func (f *TCPFlow) Src() netip.AddrPort { return f.src }

// Dst is the address and port that the guest wants to reach.
func (f *TCPFlow) Dst() netip.AddrPort { return f.dst }

// Accept completes the guest's handshake and blocks until it is complete. The
// caller owns the connection and must Close or Reset it.
func (f *TCPFlow) Accept() (*TCPConn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.req == nil {
		return nil, ErrFlowDone
	}
	if f.ctx.Err() != nil {
		f.completeLocked(true)
		return nil, ErrFlowDone
	}
	wq := new(waiter.Queue)
	ep, terr := f.req.CreateEndpoint(wq)
	f.completeLocked(terr != nil)
	if terr != nil {
		return nil, &handshakeError{dst: f.dst, err: translate(terr)}
	}
	f.conn = newTCPConn(f, wq, ep)
	return f.conn, nil
}

// Reject answers the SYN with RST. It does nothing after Accept.
func (f *TCPFlow) Reject() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.completeLocked(true)
}

// completeLocked ends the request exactly once: gVisor panics on a second time
// and leaks the request without a first.
func (f *TCPFlow) completeLocked(reset bool) {
	if f.req == nil {
		return
	}
	f.req.Complete(reset)
	f.req = nil
	f.stack.tcp.settled(f)
}

// finish is called when the handler returned.
func (f *TCPFlow) finish() {
	f.Reject()
	f.mu.Lock()
	conn := f.conn
	f.mu.Unlock()
	if conn == nil {
		f.stack.tcp.release(f)
	}
}
