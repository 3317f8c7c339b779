//go:build linux

package agentd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/workload"
	"github.com/msb-project/msb/internal/handoff"
)

// Version is this agent's version, set by the build.
var Version = "dev"

const (
	// maxExecs bounds what runs at once for the host: each costs an agent of a
	// small machine three descriptors and up to half a MiB of buffers.
	maxExecs = 256

	// maxCalls is how many calls one connection may have open. Those above
	// maxExecs are answered with RESOURCE_EXHAUSTED, those above this wait.
	maxCalls = 2048
)

var (
	// errHostGone means that the host closed the stream.
	errHostGone = errors.New("the host closed the agent's stream")

	// errProtocol means that what came from the host is not HTTP/2 as agreed.
	errProtocol = errors.New("the host broke the agent's protocol")
)

// machineOps is what the handshake and the control calls do to the machine.
type machineOps interface {
	// Configure applies the handshake and returns the defaults for every
	// process's environment, and warnings.
	Configure(ctx context.Context, req *agentpb.HandshakeRequest) (env, warnings []string, err error)
	SetClock(t time.Time) (time.Duration, error)
	// Freeze holds all writes to the workload's disk until Thaw.
	Freeze() error
	Thaw() error
	// Upper is the directory of what was written since the image.
	Upper() (*os.Root, error)
	// Terminate asks every process to end.
	Terminate()
	Stats() *agentpb.StatsResponse
	// Cgroup makes the group of one exec; nil where there are none.
	Cgroup() *workload.Cgroup
	Kernel() string
}

// server answers one host over one connection.
type server struct {
	agentpb.UnimplementedAgentServer
	ops     machineOps
	spawner *workload.Spawner
	files   *fileServer
	// containers is nil where PID 1 is no machine's.
	containers *containerServer

	ready    atomic.Bool   // the handshake is done
	shaking  atomic.Bool   // a handshake was begun
	shutdown chan struct{} // closed by Shutdown
	down     sync.Once

	execs    atomic.Int32
	carries  atomic.Bool // directories of the host
	carrier  *carrier    // of their messages; nil where there is no port for them
	maxExecs int32
	env      atomic.Pointer[[]string]
	left     leftBehind
	port     *sessionPort
	session  atomic.Pointer[portSession]
	children childSocket // openChildSocket; tests change it

	// Waits that tests shorten.
	killGrace, drainGrace, maxFreeze time.Duration
}

var _ agentpb.AgentServer = (*server)(nil)

func newServer(ops machineOps, spawner *workload.Spawner) *server {
	s := &server{
		ops: ops, spawner: spawner, files: newFileServer(spawner.Root()), shutdown: make(chan struct{}),
		maxExecs: maxExecs, killGrace: killGrace, drainGrace: drainGrace, maxFreeze: maxFreeze, left: leftBehind{max: maxLeftBehind}, children: openChildSocket,
	}
	s.session.Store(new(portSession)) // until there is one
	return s
}

// serve answers the host on rwc until the stream ends or the host asks for the
// shutdown, which gives nil. Every exec has ended or is killed by then. Where the
// machine was saved and goes on, the host begins another session.
func (s *server) serve(rwc io.ReadWriteCloser) error {
	defer s.left.close()
	s.port = &sessionPort{rwc: rwc}
	for {
		session := &portSession{port: s.port}
		s.session.Store(session)
		err := s.serveSession(session)
		if !errors.Is(err, errResumed) {
			return err
		}
		s.ready.Store(false)
		s.shaking.Store(false)
		if err := s.port.answerResume(); err != nil {
			return fmt.Errorf("%w: %w", errHostGone, err)
		}
	}
}

// serveSession answers the host until the session ends.
func (s *server) serveSession(session *portSession) error {
	conn := newHostConn(session)
	srv := grpc.NewServer(
		grpc.UnaryInterceptor(s.gateUnary), grpc.StreamInterceptor(s.gateStream),
		grpc.MaxRecvMsgSize(agentpb.MaxMessageBytes), grpc.MaxSendMsgSize(agentpb.MaxMessageBytes),
		grpc.MaxHeaderListSize(agentpb.MaxHeaderBytes), grpc.MaxConcurrentStreams(maxCalls),
		grpc.InitialWindowSize(agentpb.StreamWindowBytes), grpc.InitialConnWindowSize(agentpb.ConnWindowBytes),
		experimental.BufferPool(agentpb.NewBufferPool()),
		grpc.ConnectionTimeout(time.Hour), grpc.WaitForHandlers(true),
	)
	agentpb.RegisterAgentServer(srv, s)
	agentpb.RegisterFilesServer(srv, s.files)
	agentpb.RegisterConnectionsServer(srv, newConnectServer(s.spawner.Root(), s.children))
	agentpb.RegisterDirectoriesServer(srv, &directoryServer{
		root: s.spawner.Root(), carrier: s.carrier, carries: &s.carries, shutdown: s.shutdown, busy: func() bool { return s.execs.Load() > 0 },
	})
	agentpb.RegisterFreezerServer(srv, &freezeServer{ops: s.ops, shutdown: s.shutdown, longest: s.maxFreeze})
	if s.containers != nil {
		agentpb.RegisterContainersServer(srv, s.containers)
	}
	agentpb.RegisterSearchServer(srv, &searchServer{ops: s.ops})
	loopback := newLoopbackServer()
	defer loopback.close()
	agentpb.RegisterLoopbackServer(srv, loopback)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(handoff.Of(conn)) }()
	select {
	case <-conn.closed:
	case <-s.shutdown:
		s.finish(srv)
	}
	if session.resumed.Load() {
		go srv.Stop() // its execs go on
		return errResumed
	}
	stopServer(srv)
	<-served //nolint:errcheck // the connection's end tells more
	<-conn.closed
	select {
	case <-s.shutdown:
		return nil
	default:
	}
	if errors.Is(conn.reason, errClosedByUs) {
		return errProtocol
	}
	return fmt.Errorf("%w: %w", errHostGone, conn.reason)
}

// stopServer waits for the calls to end, but not for ever: a process that the
// kernel can't end must not keep the machine.
func stopServer(srv *grpc.Server) {
	done := make(chan struct{})
	go func() { defer close(done); srv.Stop() }()
	select {
	case <-done:
	case <-time.After(stopGrace):
	}
}

// finish lets the answer to Shutdown out before the connection is closed.
func (s *server) finish(srv *grpc.Server) {
	s.ops.Terminate()
	done := make(chan struct{})
	go func() { defer close(done); srv.GracefulStop() }()
	select {
	case <-done:
	case <-time.After(shutdownGrace):
	}
}

const (
	// shutdownGrace is how long processes may take to end after SIGTERM, and
	// the last answers to leave.
	shutdownGrace = 2 * time.Second

	// stopGrace is how long killed processes may take to end.
	stopGrace = 5 * time.Second
)

// gateUnary and gateStream let nothing through before the handshake.
func (s *server) gateUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if info.FullMethod != agentpb.Agent_Handshake_FullMethodName && !s.ready.Load() {
		return nil, errNoHandshake
	}
	return next(ctx, req)
}

func (s *server) gateStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if !s.ready.Load() {
		return errNoHandshake
	}
	return next(srv, stream)
}

var errNoHandshake = status.Error(codes.FailedPrecondition, "the first call must be Handshake")
