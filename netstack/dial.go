package netstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// MaxInbound bounds the connections into one guest, those that wait for its last acknowledgement included.
const MaxInbound = 12288

const (
	// largeInbound is how many connections into the guest have the buffers of those that the guest begins. With a guest or
	// clients that read nothing, MaxInbound of these would fill 50 GiB of the supervisor's memory.
	largeInbound = 512
	// smallBuffer is the size of each buffer of the others, in bytes.
	smallBuffer = 32 << 10
)

// errInbound is returned by DialGuest while there are MaxInbound connections.
var errInbound = fmt.Errorf("netstack: there are %d connections into the guest already", MaxInbound)

// inboundEnds are the addresses of a connection to the guest that from begins: the guest's address of that family, and from
// itself. One that the guest would not believe, or answer by its gateway, has the gateway's in its place: its own, one of a
// loopback or a link, or the zero value, which is IPv4.
func (s *Stack) inboundEnds(from netip.Addr) (source, guest netip.Addr) {
	from = from.Unmap().WithZone("")
	source, guest = s.cfg.Gateway4, s.cfg.Guest4
	if from.Is6() {
		source, guest = s.cfg.Gateway6, s.cfg.Guest6
	}
	if from.IsGlobalUnicast() && from != guest {
		source = from
	}
	return source, guest
}

func protocolOf(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is6() {
		return ipv6.ProtocolNumber
	}
	return ipv4.ProtocolNumber
}

// DialGuest connects to a TCP port of the guest, for published ports, with from as the address that the guest sees; the
// zero value is the gateway's. The caller owns the connection and must Close or Reset it. It takes none of Limits, which are
// for what the guest begins.
func (s *Stack) DialGuest(ctx context.Context, from netip.Addr, port uint16) (*TCPConn, error) {
	source, guest := s.inboundEnds(from)
	f, err := s.tcp.reserveInbound(netip.AddrPortFrom(guest, port))
	if err != nil {
		return nil, err
	}
	defer s.wg.Done() // until then Close ends what is connected here
	c, terr := s.newInbound(f)
	if terr != nil {
		s.tcp.release(f)
		return nil, &dialError{f.src, translate(terr)}
	}
	ep, wq := c.ep, c.wq
	if err := connect(ctx, ep, wq, netip.AddrPortFrom(source, 0), f.src); err != nil {
		c.Reset()
		return nil, &dialError{f.src, err}
	}
	if local, terr := ep.GetLocalAddress(); terr == nil {
		f.dst = addrPort(local.Addr, local.Port)
	}
	return c, nil
}

// newInbound makes the connection of a slot, without connecting it.
func (s *Stack) newInbound(f *TCPFlow) (*TCPConn, tcpip.Error) {
	wq := new(waiter.Queue)
	ep, terr := s.net.NewEndpoint(tcp.ProtocolNumber, protocolOf(f.src.Addr()), wq)
	if terr != nil {
		return nil, terr
	}
	if f.small {
		ep.SocketOptions().SetSendBufferSize(smallBuffer, true)
		ep.SocketOptions().SetReceiveBufferSize(smallBuffer, true)
	}
	return newTCPConn(f, wq, ep), nil
}

// connect waits until the endpoint is connected, or ctx ends.
func connect(ctx context.Context, ep tcpip.Endpoint, wq *waiter.Queue, from, to netip.AddrPort) error {
	entry, ready := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	wq.EventRegister(&entry)
	defer wq.EventUnregister(&entry)
	terr := ep.Bind(fullAddr(from))
	if terr == nil {
		terr = ep.Connect(fullAddr(to))
	}
	if _, started := terr.(*tcpip.ErrConnectStarted); started {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ready:
		}
		terr = ep.LastError()
	}
	if terr != nil {
		return translate(terr)
	}
	return nil
}

type dialError struct {
	guest netip.AddrPort
	err   error
}

func (e *dialError) Error() string {
	return fmt.Sprintf("connect to the guest's %s: %v", e.guest, e.err)
}
func (e *dialError) Unwrap() error { return e.err }

// reserveInbound takes a slot for a connection to the guest's address src.
func (t *tcpFlows) reserveInbound(src netip.AddrPort) (*TCPFlow, error) {
	f := &TCPFlow{stack: t.stack, src: src, dst: netip.AddrPortFrom(t.stack.cfg.Gateway4, 0)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.inbound) >= MaxInbound {
		t.sweepLocked()
	}
	switch {
	case t.stack.ctx.Err() != nil:
		return nil, ErrClosed
	case len(t.inbound) >= MaxInbound:
		return nil, errInbound
	}
	f.ctx, f.cancel = context.WithCancel(t.stack.ctx)
	f.small = len(t.inbound) >= largeInbound
	t.inbound[f] = struct{}{}
	t.stack.wg.Add(1)
	return f, nil
}

// guestUDP is a socket that is connected to a UDP port of the guest.
type guestUDP struct {
	*gonet.UDPConn
	ep      tcpip.Endpoint
	wq      *waiter.Queue
	refuses waiter.Entry
	refused atomic.Bool // since Read looked
	closed  sync.Once
}

// watch lets a Read that waits return when the guest refuses a datagram: gonet's waits for datagrams only.
func (c *guestUDP) watch() {
	c.refuses = waiter.NewFunctionEntry(waiter.EventErr, func(waiter.EventMask) {
		c.refused.Store(true)
		_ = c.SetReadDeadline(time.Now()) // never fails
	})
	c.wq.EventRegister(&c.refuses)
}

// Close implements net.Conn.
func (c *guestUDP) Close() error {
	c.closed.Do(func() { c.wq.EventUnregister(&c.refuses) })
	return c.UDPConn.Close()
}

// DialGuestUDP returns a socket that is connected to a UDP port of the guest, which sees the address that DialGuest's does: a
// Read and a Write for each datagram. When the guest refuses a datagram, the next Read or Write returns the error, and a Read
// that waits ends; so set the read deadline before each Read. A Write never waits: while the guest takes nothing and
// there is no room, a datagram is lost, as UDP may be. The caller must close the socket, and bounds how many there
// are.
func (s *Stack) DialGuestUDP(from netip.Addr, port uint16) (net.Conn, error) {
	if s.ctx.Err() != nil {
		return nil, ErrClosed
	}
	source, to := s.inboundEnds(from)
	guest := netip.AddrPortFrom(to, port)
	wq := new(waiter.Queue)
	ep, terr := s.net.NewEndpoint(udp.ProtocolNumber, protocolOf(to), wq)
	if terr != nil {
		return nil, &dialError{guest, translate(terr)}
	}
	terr = ep.Bind(fullAddr(netip.AddrPortFrom(source, 0)))
	if terr == nil {
		terr = ep.Connect(fullAddr(guest))
	}
	if terr != nil {
		ep.Close()
		return nil, &dialError{guest, translate(terr)}
	}
	c := &guestUDP{UDPConn: gonet.NewUDPConn(wq, ep), ep: ep, wq: wq}
	c.watch()
	if s.ctx.Err() != nil {
		return nil, errors.Join(ErrClosed, c.Close())
	}
	return c, nil
}

// Write implements net.Conn.
func (c *guestUDP) Write(b []byte) (int, error) {
	_, terr := c.ep.Write(bytes.NewReader(b), tcpip.WriteOptions{})
	switch terr.(type) {
	case nil, *tcpip.ErrWouldBlock, *tcpip.ErrNoBufferSpace:
		return len(b), nil
	}
	return 0, translate(terr)
}

// Read implements net.Conn.
func (c *guestUDP) Read(b []byte) (int, error) {
	n, err := c.UDPConn.Read(b)
	if c.refused.Swap(false) && errors.Is(err, os.ErrDeadlineExceeded) {
		if terr := c.ep.LastError(); terr != nil { // nil: a Write has returned it
			return n, translate(terr)
		}
	}
	return n, translateConn(err)
}

// fullAddr converts to gVisor's address.
func fullAddr(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}
}
