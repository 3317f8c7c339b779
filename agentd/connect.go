//go:build linux

package agentd

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/workload"
)

const (
	// maxConnections bounds the host's connections to servers in the guest: each takes a descriptor and up to half a
	// MiB of buffers.
	maxConnections = 128

	// connectTimeout is for a server whose backlog is full; others answer at once.
	connectTimeout = 10 * time.Second
)

// connectServer opens connections to addresses of the guest's own, and carries those of its programs to the host.
type connectServer struct {
	agentpb.UnimplementedConnectionsServer
	slots     chan struct{}
	listeners *listenServer
}

var _ agentpb.ConnectionsServer = (*connectServer)(nil)

func newConnectServer(root *workload.Root, children childSocket) *connectServer {
	return &connectServer{slots: make(chan struct{}, maxConnections), listeners: newListenServer(root, children)}
}

// Connect implements agentpb.ConnectionsServer.
func (s *connectServer) Connect(stream grpc.BidiStreamingServer[agentpb.ConnectRequest, agentpb.ConnectResponse]) error {
	select {
	case s.slots <- struct{}{}:
	default:
		return status.Errorf(codes.ResourceExhausted, "%d connections of the host are open already; close one", maxConnections)
	}
	defer func() { <-s.slots }()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return status.Error(codes.InvalidArgument, "the first message of a connection must be start")
	}
	conn, err := s.open(stream.Context(), start)
	if err != nil {
		return err
	}
	// A call that was given up must not wait for a server that says nothing.
	stop := context.AfterFunc(stream.Context(), func() { conn.Close() })
	defer stop()
	defer conn.Close()
	if err := stream.Send(&agentpb.ConnectResponse{Response: &agentpb.ConnectResponse_Connected{Connected: &agentpb.Connected{}}}); err != nil {
		return err
	}
	toServer := make(chan error, 1)
	go func() { toServer <- sendToServer(stream, conn) }()
	if err := receiveFromServer(stream, conn); err != nil {
		conn.Close()
		return err // gRPC ends the other half's Recv with the call
	}
	return <-toServer
}

// open connects to a server, or takes a connection of a listener's, which ends with that.
func (s *connectServer) open(ctx context.Context, start *agentpb.ConnectStart) (halfCloser, error) {
	if start.GetAccepted() == 0 {
		return dialOwn(ctx, start)
	}
	a, err := s.listeners.take(start.GetAccepted())
	if err != nil {
		return nil, err
	}
	return a, nil
}

// dialOwn connects to an address of this machine, and to no other: what goes out is for the workload to ask.
func dialOwn(ctx context.Context, start *agentpb.ConnectStart) (halfCloser, error) {
	addr, err := netip.ParseAddr(start.GetAddress())
	if err != nil || addr.Zone() != "" || start.GetPort() == 0 || start.GetPort() > 1<<16-1 {
		return nil, status.Errorf(codes.InvalidArgument, "%q, port %d: no address and port", start.GetAddress(), start.GetPort())
	}
	addr = addr.Unmap()
	if !ownAddress(addr) {
		return nil, status.Errorf(codes.PermissionDenied, "%s is no address of the guest", addr)
	}
	d := net.Dialer{Timeout: connectTimeout}
	conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(addr, uint16(start.GetPort())).String())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	half, ok := conn.(halfCloser)
	if !ok {
		conn.Close()
		return nil, status.Error(codes.Internal, "the connection is not TCP")
	}
	return half, nil
}

func ownAddress(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	all, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(all, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr() == addr
	})
}

// sendToServer writes the host's bytes. A server that stops reading stops the host by gRPC's flow control.
func sendToServer(stream agentpb.Connections_ConnectServer, conn halfCloser) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			_ = conn.CloseWrite() // fails where the server has closed already
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := conn.Write(req.GetData()); err != nil {
			conn.Close() // the other half tells that the server is gone
			return status.Error(codes.Aborted, err.Error())
		}
	}
}

// receiveFromServer returns nil once the server has sent all.
func receiveFromServer(stream agentpb.Connections_ConnectServer, conn halfCloser) error {
	buf := make([]byte, agentpb.ChunkBytes)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if err := stream.Send(&agentpb.ConnectResponse{Response: &agentpb.ConnectResponse_Data{Data: buf[:n]}}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return stream.Send(&agentpb.ConnectResponse{Response: &agentpb.ConnectResponse_Eof{Eof: &agentpb.ConnectEOF{}}})
		}
		if err != nil {
			return status.Error(codes.Aborted, err.Error())
		}
	}
}
