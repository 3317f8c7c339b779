package netstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/msb-project/msb/netstack/frameguard"
)

const (
	nicID tcpip.NICID = 1
	// rateBurstPart: a tenth of a second's bytes may pass at once.
	rateBurstPart = 10
	// closeWait bounds how long Close waits for handlers that ignore their
	// context.
	closeWait = 10 * time.Second
	// abortAgain is how often Close looks for connections that came late.
	abortAgain = 20 * time.Millisecond
)

// ErrClosed is returned by calls on a closed Stack.
var ErrClosed = errors.New("netstack: closed")

// Stack is the gateway's end of one guest's link.
type Stack struct {
	cfg   Config
	cnt   counters
	guard *frameguard.Guard
	ep    *endpoint
	net   *stack.Stack
	tcp   *tcpFlows
	udp   *udpFlows
	pings *pings
	dhcp  *dhcpServer
	ra    *advertiser
	icmp  *icmpErrors
	now   func() time.Time

	limits atomic.Pointer[Limits]
	rate   atomic.Pointer[rate.Limiter] // nil: none

	ctx    context.Context // ends every flow at Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // handlers

	serveMu sync.Mutex // one link at a time
	// passed are frames that the guard let pass and that the tap has not seen yet; used only by the goroutine that
	// reads the link.
	passed Batch

	closeOnce sync.Once
	closeErr  error
}

// New builds a stack. It does nothing until Serve.
func New(cfg Config) (*Stack, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	silence()
	s := &Stack{cfg: cfg, now: time.Now}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.guard = frameguard.New(s.cfg.guard())
	s.ep = newEndpoint(&s.cfg, &s.cnt, s.guard)
	s.net = stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			// Loopback destinations reach the Handler, so that they are refused
			// at once instead of lost.
			ipv4.NewProtocolWithOptions(ipv4.Options{AllowExternalLoopbackTraffic: true}),
			// No DAD: the gateway's addresses are ours by definition.
			ipv6.NewProtocolWithOptions(ipv6.Options{AllowExternalLoopbackTraffic: true}),
			arp.NewProtocol,
		},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	s.tcp = newTCPFlows(s)
	s.udp = newUDPFlows(s)
	s.pings = newPings(s)
	s.dhcp = newDHCPServer(s)
	s.ra = newAdvertiser(s)
	s.icmp = newICMPErrors(s)
	s.SetLimits(cfg.Limits)
	if err := s.configure(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// SetLimits puts l in force from the next flow and frame on. Flows above a lower
// bound go on; none is added until there is room.
func (s *Stack) SetLimits(l Limits) {
	l = l.withDefaults()
	old := s.limits.Swap(&l)
	if old != nil && old.EgressRate == l.EgressRate {
		return // what its bucket holds stays
	}
	if l.EgressRate <= 0 {
		s.rate.Store(nil)
		return
	}
	s.rate.Store(rate.NewLimiter(rate.Limit(l.EgressRate), int(max(l.EgressRate/rateBurstPart, MaxFrame))))
}

// configure sets the NIC, addresses, routes and protocol options.
func (s *Stack) configure() error {
	steps := []func() tcpip.Error{
		func() tcpip.Error {
			return s.net.CreateNICWithOptions(nicID, s.ep, stack.NICOptions{QDisc: newTxQueue(s.ep)})
		},
		// Promiscuous: flows to any address end here. Spoofing: answers come
		// from that address.
		func() tcpip.Error { return s.net.SetPromiscuousMode(nicID, true) },
		func() tcpip.Error { return s.net.SetSpoofing(nicID, true) },
		func() tcpip.Error { return s.addAddress(ipv4.ProtocolNumber, s.cfg.Gateway4, s.cfg.Prefix4) },
		func() tcpip.Error { return s.addAddress(ipv6.ProtocolNumber, s.cfg.Gateway6, s.cfg.Prefix6) },
		func() tcpip.Error {
			return s.addAddress(ipv6.ProtocolNumber, frameguard.LinkLocal(s.cfg.GatewayMAC), 64)
		},
	}
	for _, step := range steps {
		if terr := step(); terr != nil {
			return fmt.Errorf("netstack: setting the stack up: %s", terr)
		}
	}
	s.net.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, NIC: nicID},
		{Destination: header.IPv6EmptySubnet, NIC: nicID},
	})
	if err := tuneStack(s.net); err != nil {
		return err
	}
	s.net.SetTransportProtocolHandler(tcp.ProtocolNumber, s.tcp.handle)
	s.net.SetTransportProtocolHandler(udp.ProtocolNumber, s.udp.handle)
	s.net.SetTransportProtocolHandler(icmp.ProtocolNumber4, s.pings.handle)
	s.net.SetTransportProtocolHandler(icmp.ProtocolNumber6, s.pings.handle)
	return nil
}

func (s *Stack) addAddress(proto tcpip.NetworkProtocolNumber, a netip.Addr, bits int) tcpip.Error {
	return s.net.AddProtocolAddress(nicID, tcpip.ProtocolAddress{
		Protocol:          proto,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: addressOf(a), PrefixLen: bits},
	}, stack.AddressProperties{})
}

// Serve takes link over and carries frames until it ends, ctx ends or the stack
// closes. Nil means that the peer has gone. The stack keeps its flows, so that
// Serve may be called again with the guest's next link.
func (s *Stack) Serve(ctx context.Context, link Link) error {
	s.serveMu.Lock()
	defer s.serveMu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = link.Close() })
	defer stop()
	stopped := context.AfterFunc(s.ctx, func() { _ = link.Close() }) //nolint:contextcheck // the stack's own life, beside the caller's
	defer stopped()
	s.ep.setLink(link)
	err := s.readFrames(ctx, link)
	s.ep.setLink(nil)
	_ = link.Close()
	switch {
	case s.ctx.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return nil // a peer that goes with frames unread resets the socket
	}
	return fmt.Errorf("netstack: link: %w", err)
}

func (s *Stack) readFrames(ctx context.Context, link Link) error {
	for {
		frame, err := link.ReadFrame()
		if err != nil {
			return err
		}
		s.frame(frame)
		limiter := s.rate.Load()
		if !follows(link) || limiter != nil || s.passed.Len() >= maxPassed {
			s.deliverPassed()
		}
		if limiter != nil {
			// Waiting here is backpressure: the guest's own queues fill.
			if err := limiter.WaitN(ctx, min(len(frame), MaxFrame)); err != nil {
				return err
			}
		}
	}
}

// maxPassed bounds the frames that the tap gets at once.
const maxPassed = 64

// follows reports whether the next frame is there already and this one stays valid beside it.
func follows(link Link) bool {
	l, ok := link.(readAhead)
	return ok && l.ready()
}

// deliverPassed hands the frames that the guard let pass to the tap, then to the stack.
func (s *Stack) deliverPassed() {
	if s.passed.Len() == 0 {
		return
	}
	s.ep.taps.Frames(FromGuest, &s.passed)
	for i := range s.passed.Len() {
		s.ep.deliver(s.passed.Frame(i)[0])
	}
	s.passed.Reset()
}

// frame takes one frame from the guest through guard, tap and stack. Where the tap takes several at once,
// one that passes waits for deliverPassed.
func (s *Stack) frame(frame []byte) {
	s.cnt.frames[FromGuest].Add(1)
	s.cnt.bytes[FromGuest].Add(int64(len(frame)))
	v := s.guard.Check(frame)
	if v == frameguard.Pass && s.ep.taps != nil {
		s.passed.Part(frame)
		s.passed.End()
		return
	}
	s.deliverPassed() // frames keep their order
	switch v {        //nolint:exhaustive // the others are final
	case frameguard.TakeDHCP:
		v = s.dhcp.answer(frame)
	case frameguard.TakeRS:
		v = s.ra.answer()
	case frameguard.DropProtocol:
		s.icmp.send(frame[header.EthernetMinimumSize:], protocolUnreachable)
	case frameguard.Pass:
		if s.cfg.Tap != nil {
			s.cfg.Tap.Frame(FromGuest, frame, "")
		}
		s.ep.deliver(frame)
		return
	}
	if s.cfg.Tap != nil {
		s.cfg.Tap.Frame(FromGuest, frame, v.Reason())
	}
	if v != frameguard.Pass {
		s.drop(v, 1)
	}
}

// drop counts frames that are thrown away.
func (s *Stack) drop(v frameguard.Verdict, n int64) {
	s.cnt.drops[v].Add(n)
	if v != frameguard.DropQuiet && v != frameguard.DropMulticast && v != frameguard.DropStray && n > 0 { // what every guest sends
		s.cfg.Handler.Dropped(v.Reason(), n)
	}
}

// limited counts a bound that was hit.
func (s *Stack) limited(kind LimitKind, protocol string, src, dst netip.AddrPort) {
	s.cnt.limits[slices.Index(limitKinds[:], kind)].Add(1)
	s.cfg.Handler.Limited(LimitEvent{Kind: kind, Protocol: protocol, Src: src, Dst: dst, Time: s.now()})
}

// Config returns the configuration with its defaults filled in.
func (s *Stack) Config() Config { return s.cfg }

// Stats returns the counters.
func (s *Stack) Stats() Stats {
	st := s.cnt.snapshot()
	st.TCPConnections = s.tcp.count()
	st.UDPFlows = s.udp.count()
	return st
}

// Close resets every connection, ends the link and waits for the handlers. An
// error means that a handler ignored its context.
func (s *Stack) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

// abort ends every connection; gVisor's Close leaves endpoints alive.
func (s *Stack) abort() {
	for _, ep := range s.net.RegisteredEndpoints() {
		ep.Abort()
	}
}

// waitHandlers waits for the handlers, with a bound. A handler that was on its way into Accept when the
// connections were aborted has its endpoint only afterwards, and would wait there for a handshake that
// nobody ends: so they are aborted again until all have returned.
func (s *Stack) waitHandlers() error {
	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }()
	late, again := time.NewTimer(closeWait), time.NewTicker(abortAgain)
	defer late.Stop()
	defer again.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-again.C:
			s.abort()
		case <-late.C:
			return fmt.Errorf("netstack: a flow handler did not return %s after its context ended", closeWait)
		}
	}
}

func (s *Stack) close() error {
	s.cancel() // closes the link first: a frame after the NIC is gone panics
	s.serveMu.Lock()
	defer s.serveMu.Unlock()
	s.tcp.barrier()
	s.udp.close()
	s.abort()
	s.tcp.closeAll()
	err := s.waitHandlers()
	// Segments of connections that came in fragments: gVisor checked them.
	s.drop(frameguard.DropChecksum, int64(s.net.Stats().TCP.ChecksumErrors.Value()))
	s.net.RemoveNIC(nicID)
	s.net.Close()
	for _, ep := range s.net.CleanupEndpoints() {
		ep.Abort()
	}
	s.net.Wait()
	return err
}
