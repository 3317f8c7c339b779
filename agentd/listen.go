//go:build linux

package agentd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/workload"
)

const (
	// maxListeners bounds the host's listeners in the guest.
	maxListeners = 64

	// maxUnclaimed bounds the connections of one listener that were announced to the host and not yet taken. Others wait in
	// the kernel's queue.
	maxUnclaimed = 16

	// claimWait is how long the host may take to ask for one.
	claimWait = 10 * time.Second

	// The ports that displays of X11 have (X.Org's X_TCP_PORT), for as many as sshd looks at.
	minX11Port, maxX11Port = 6000, 6000 + 1009

	// x11Offset is the first display that the agent takes, as sshd's X11DisplayOffset: lower ones are real servers'.
	x11Offset = 10
)

// halfCloser is a connection whose directions end by themselves.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// listenServer accepts the guest's connections for the host. Connect carries them.
type listenServer struct {
	root  *workload.Root
	slots chan struct{}
	claim time.Duration // claimWait; tests change it
	// children opens the socket of BACK_CHILDREN.
	children childSocket

	mu        sync.Mutex
	last      uint64
	unclaimed map[uint64]*accepted
}

// accepted is a connection of a program of the guest's.
type accepted struct {
	halfCloser
	life    context.Context // of its listener
	free    func()          // lets the listener accept another one
	unwatch func() bool     // of life
}

// Close implements net.Conn.
func (a *accepted) Close() error {
	a.unwatch()
	return a.halfCloser.Close()
}

func newListenServer(root *workload.Root, children childSocket) *listenServer {
	return &listenServer{root: root, slots: make(chan struct{}, maxListeners), claim: claimWait, children: children, unclaimed: make(map[uint64]*accepted)}
}

// Listen implements agentpb.ConnectionsServer.
func (s *connectServer) Listen(r *agentpb.ListenRequest, stream grpc.ServerStreamingServer[agentpb.ListenResponse]) error {
	l := s.listeners
	select {
	case l.slots <- struct{}{}:
	default:
		return status.Errorf(codes.ResourceExhausted, "the guest listens in %d places for the host already; end one", maxListeners)
	}
	defer func() { <-l.slots }()
	ctx := stream.Context() // whose end, with the call, ends the connections
	listener, first, err := l.open(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	if r.GetBack() == agentpb.Back_BACK_AGENT {
		defer l.remove(first.GetPath())
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	if err := stream.Send(&agentpb.ListenResponse{Response: &agentpb.ListenResponse_Listening{Listening: first}}); err != nil {
		return err
	}
	return l.serve(ctx, listener, stream)
}

// open listens as r says.
func (s *listenServer) open(ctx context.Context, r *agentpb.ListenRequest) (net.Listener, *agentpb.Listening, error) {
	switch r.GetBack() {
	case agentpb.Back_BACK_AGENT:
		l, path, err := s.openSocket(r.GetUser())
		return l, &agentpb.Listening{Path: path}, err
	case agentpb.Back_BACK_CHILDREN:
		l, err := s.children(s.root, r.GetUser())
		if err != nil {
			return nil, nil, status.Error(codes.InvalidArgument, fmt.Errorf("a socket for children: %w", err).Error())
		}
		return l, &agentpb.Listening{Path: agentpb.ChildSocket}, nil
	case agentpb.Back_BACK_REVERSE:
	case agentpb.Back_BACK_X11:
		if r.GetPort() == 0 {
			return s.openDisplay(ctx, r)
		}
		if r.GetPort() < minX11Port || r.GetPort() > maxX11Port {
			return nil, nil, status.Errorf(codes.InvalidArgument, "%d is no port of a display", r.GetPort())
		}
	default:
		return nil, nil, status.Error(codes.InvalidArgument, "a listener for nothing that is known")
	}
	addr, err := netip.ParseAddr(r.GetAddress())
	if err != nil || !addr.IsLoopback() || addr.Zone() != "" || r.GetPort() > 1<<16-1 {
		return nil, nil, status.Errorf(codes.InvalidArgument, "%q, port %d: no loopback address and port", r.GetAddress(), r.GetPort())
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", netip.AddrPortFrom(addr.Unmap(), uint16(r.GetPort())).String())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, nil, status.Errorf(codes.InvalidArgument, "port %d of the guest's %s is taken", r.GetPort(), addr)
	}
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	a, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		_ = l.Close()
		return nil, nil, status.Error(codes.Internal, err.Error())
	}
	return l, &agentpb.Listening{Port: uint32(a.Port())}, nil
}

// openDisplay takes the first display that is free.
func (s *listenServer) openDisplay(ctx context.Context, r *agentpb.ListenRequest) (l net.Listener, first *agentpb.Listening, err error) {
	for port := uint32(minX11Port + x11Offset); port <= maxX11Port; port++ {
		if l, first, err = s.open(ctx, &agentpb.ListenRequest{Back: r.GetBack(), Address: r.GetAddress(), Port: port}); err == nil || ctx.Err() != nil {
			return l, first, err
		}
	}
	return nil, nil, err
}

// openSocket makes a socket that only that user can connect to. It gives the directory to the user last: a directory's
// owner can replace the socket by a link, and root's chown would then apply to the link's target.
func (s *listenServer) openSocket(user string) (l *net.UnixListener, path string, err error) {
	err = s.root.Run(func() (err error) {
		owner, err := workload.LookupOwner(user)
		if err != nil {
			return err
		}
		dir, err := os.MkdirTemp("/tmp", "ssh-") // 0700
		if err != nil {
			return err
		}
		path = filepath.Join(dir, "agent")
		if l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err == nil {
			l.SetUnlinkOnClose(false) // it would be looked for in the agent's own root
			err = errors.Join(os.Chmod(path, 0o600), os.Lchown(path, int(owner.UID), int(owner.GID)), os.Lchown(dir, int(owner.UID), int(owner.GID)))
		}
		if err != nil {
			if l != nil {
				_ = l.Close()
			}
			_ = os.RemoveAll(dir)
		}
		return err
	})
	if err != nil {
		return nil, "", status.Error(codes.InvalidArgument, fmt.Errorf("a socket for the ssh agent: %w", err).Error())
	}
	return l, path, nil
}

func (s *listenServer) remove(path string) {
	_ = s.root.Run(func() error { return os.RemoveAll(filepath.Dir(path)) }) // the user may have done so
}

// serve tells the host of connections until ctx ends.
func (s *listenServer) serve(ctx context.Context, l net.Listener, stream grpc.ServerStreamingServer[agentpb.ListenResponse]) error {
	slots := make(chan struct{}, maxUnclaimed)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return status.FromContextError(ctx.Err()).Err()
			}
			if errors.Is(err, net.ErrClosed) {
				return status.Error(codes.Aborted, err.Error())
			}
			<-slots // such as too many open files, or a client that is gone already
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		conn, ok := c.(halfCloser)
		if !ok { // TCP and Unix connections are
			_ = c.Close()
			<-slots
			continue
		}
		told := &agentpb.Accepted{Id: s.put(&accepted{halfCloser: conn, life: ctx, free: func() { <-slots }})}
		if a, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
			told.Address, told.Port = a.Addr().String(), uint32(a.Port())
		}
		if err := stream.Send(&agentpb.ListenResponse{Response: &agentpb.ListenResponse_Accepted{Accepted: told}}); err != nil {
			return err
		}
	}
}

// put keeps a connection until it is taken, its listener ends or claim is over.
func (s *listenServer) put(a *accepted) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	id := s.last
	s.unclaimed[id] = a
	late := time.AfterFunc(s.claim, func() {
		if a, err := s.take(id); err == nil {
			_ = a.Close()
		}
	})
	a.unwatch = context.AfterFunc(a.life, func() {
		_, _ = s.take(id) // if nobody has
		_ = a.halfCloser.Close()
	})
	free := a.free
	a.free = func() { late.Stop(); free() }
	return id
}

// take gives out a connection that is not taken yet.
func (s *listenServer) take(id uint64) (*accepted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.unclaimed[id]
	if a == nil {
		return nil, status.Error(codes.InvalidArgument, "the connection has ended, or is carried already")
	}
	delete(s.unclaimed, id)
	a.free()
	return a, nil
}
