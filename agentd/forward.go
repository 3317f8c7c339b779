//go:build linux

package agentd

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

const (
	// maxForwards bounds the ports that lead to loopback servers, maxForwarded the connections to all of them. Others
	// wait to be accepted.
	maxForwards  = 256
	maxForwarded = 512
)

// loopbackServer lets the host reach servers that listen on loopback addresses only.
type loopbackServer struct {
	agentpb.UnimplementedLoopbackServer
	ctx    context.Context // ends what is forwarded
	cancel context.CancelFunc
	slots  chan struct{}
	idle   time.Duration // udpFlowIdle; tests change it
	work   sync.WaitGroup

	mu       sync.Mutex
	forwards map[forward]forwarder
	flows    udpFlows
}

// forwarder is what a forward listens with.
type forwarder interface{ Close() error }

// forward is a server's port, and where the host reaches it.
type forward struct {
	port         uint16
	listen, from netip.Addr
	udp          bool
}

var _ agentpb.LoopbackServer = (*loopbackServer)(nil)

func newLoopbackServer() *loopbackServer {
	s := &loopbackServer{slots: make(chan struct{}, maxForwarded), idle: udpFlowIdle, forwards: make(map[forward]forwarder)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Forward implements agentpb.LoopbackServer.
func (s *loopbackServer) Forward(ctx context.Context, r *agentpb.ForwardRequest) (*agentpb.ForwardResponse, error) {
	listen, ok1 := netip.AddrFromSlice(r.GetListen())
	from, ok2 := netip.AddrFromSlice(r.GetFrom())
	if !ok1 || !ok2 || r.GetPort() == 0 || r.GetPort() > 1<<16-1 {
		return nil, status.Error(codes.InvalidArgument, "a forward needs a port and two addresses")
	}
	f := forward{uint16(r.GetPort()), listen, from, r.GetUdp()}
	if err := f.check(ctx); err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	l, err := s.open(f)
	if err != nil {
		return nil, err
	}
	return &agentpb.ForwardResponse{Port: uint32(portOf(l))}, nil
}

func portOf(l forwarder) uint16 {
	var at net.Addr
	switch l := l.(type) {
	case net.Listener:
		at = l.Addr()
	case *net.UDPConn:
		at = l.LocalAddr()
	default:
		return 0
	}
	a, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return 0 // an address without a port has none to report
	}
	return a.Port()
}

// check is an error unless there is a server.
func (f forward) check(ctx context.Context) error {
	if f.udp {
		_, err := loopbackUDP("/proc/self/net", f.port)
		return err
	}
	c, err := f.dial(ctx)
	if err == nil {
		_ = c.Close()
	}
	return err
}

// dial connects to the server.
func (f forward) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(f.port))))
	if err != nil {
		var err6 error
		if c, err6 = d.DialContext(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(int(f.port)))); err6 != nil {
			return nil, err
		}
	}
	return c, nil
}

// open listens for the host, or finds who does.
func (s *loopbackServer) open(f forward) (forwarder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch l := s.forwards[f]; {
	case s.ctx.Err() != nil:
		return nil, status.Error(codes.Canceled, "the guest shuts down")
	case l != nil:
		return l, nil
	case len(s.forwards) >= maxForwards:
		return nil, status.Errorf(codes.ResourceExhausted, "%d ports lead to loopback servers already", maxForwards)
	}
	var lc net.ListenConfig
	if f.udp {
		c, err := lc.ListenPacket(s.ctx, "udp", netip.AddrPortFrom(f.listen, 0).String())
		if err != nil {
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
		conn, ok := c.(*net.UDPConn)
		if !ok { // it is
			_ = c.Close()
			return nil, status.Error(codes.Internal, "no UDP socket")
		}
		s.forwards[f] = conn
		s.work.Go(func() { s.serveUDP(conn, f) })
		return conn, nil
	}
	l, err := lc.Listen(s.ctx, "tcp", netip.AddrPortFrom(f.listen, 0).String())
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	s.forwards[f] = l
	s.work.Go(func() { s.serve(l, f) })
	return l, nil
}

// serve accepts the host's connections and nobody else's.
func (s *loopbackServer) serve(l net.Listener, f forward) {
	stop := context.AfterFunc(s.ctx, func() { _ = l.Close() })
	defer stop()
	for {
		select {
		case s.slots <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			<-s.slots
			return
		}
		if err != nil { // the peer is gone already
			<-s.slots
			continue
		}
		a, err := netip.ParseAddrPort(c.RemoteAddr().String())
		if err != nil || a.Addr().Unmap() != f.from {
			<-s.slots
			reset(c)
			continue
		}
		s.work.Go(func() {
			defer func() { <-s.slots }()
			s.carry(c, f)
		})
	}
}

// carry passes one connection on to the server, until both have sent their last byte or one broke.
func (s *loopbackServer) carry(host net.Conn, f forward) {
	server, err := f.dial(s.ctx)
	if err != nil {
		reset(host)
		return
	}
	stop := context.AfterFunc(s.ctx, func() { reset(host); reset(server) })
	defer stop()
	var up sync.WaitGroup
	up.Go(func() { pass(server, host) })
	pass(host, server)
	up.Wait()
	_, _ = host.Close(), server.Close()
}

// pass copies one way, in the kernel, and passes the end on.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
		return
	}
	reset(to)
	reset(from)
}

// reset closes with a reset.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// close ends every connection.
func (s *loopbackServer) close() {
	s.mu.Lock()
	s.cancel() // none is opened from here on
	s.mu.Unlock()
	s.work.Wait()
}
