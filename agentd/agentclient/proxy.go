package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// proxy passes a session's calls on: all but Handshake and Shutdown, which only the process
// that owns the machine may make.
type proxy struct {
	agentpb.UnimplementedAgentServer
	c    *Client
	tell func(ExecEvent)      // may be nil
	life context.Context      // of the server: that of processes whose client has detached
	work *sync.WaitGroup      // of their goroutines
	use  func() (done func()) // may be nil
}

var _ agentpb.AgentServer = (*proxy)(nil)

// maxProxyCalls bounds the calls of one proxy client. It is above the guest's own limit, so
// that clients meet that one first.
const maxProxyCalls = 1024

// proxyGreeting is how long a proxy client may take for its first bytes.
const proxyGreeting = 5 * time.Second

// Services are what Serve's clients get beside the guest: nil for none.
type Services struct {
	Jobs  JobServer
	Ports PortServer
	// Supervisor answers for the process that serves.
	Supervisor SupervisorServer
	// SSH serves the SSH client behind conn, until it or the sandbox ends. Closing conn ends a Read and a Write that wait.
	// notice gets what the client's user is to know.
	SSH func(conn io.ReadWriteCloser, notice func(string)) error
	// Save is nil where no machine can be saved.
	Save SaveMemory
	// Tell gets the events of the processes that clients run, except jobs. It must return at once.
	Tell func(ExecEvent)
	// Use is called for each call, except those that only ask for figures, and returns a function that is called at its
	// end. For a process that is the end of the process, even if its client has detached.
	Use func() (done func())
	// Containers serves what containers see of the host; nil refuses all containers.
	Containers *ContainerDirectories
	// Transfer is the guest's transfer disk; nil for none.
	Transfer *TransferDisk
	// Refuse is asked before each call that needs the guest: if it returns an error, that is the answer.
	Refuse func() error
}

// Serve answers clients on lis with c's guest and the services, until ctx ends or lis fails. It closes lis and returns when
// every connection is closed.
func Serve(ctx context.Context, lis net.Listener, c *Client, also Services) error {
	life, end := context.WithCancel(ctx)
	var work sync.WaitGroup
	srv := grpc.NewServer(
		grpc.UnaryInterceptor(also.useUnary), grpc.StreamInterceptor(also.useStream),
		grpc.MaxRecvMsgSize(agentpb.MaxMessageBytes), grpc.MaxSendMsgSize(agentpb.MaxMessageBytes),
		grpc.MaxHeaderListSize(agentpb.MaxHeaderBytes), grpc.MaxConcurrentStreams(maxProxyCalls),
		grpc.InitialWindowSize(agentpb.StreamWindowBytes), grpc.InitialConnWindowSize(agentpb.ConnWindowBytes),
		experimental.BufferPool(agentpb.NewBufferPool()),
		grpc.WaitForHandlers(true),
		// A client that says nothing would hold up the end for two minutes.
		grpc.ConnectionTimeout(proxyGreeting),
	)
	agentpb.RegisterAgentServer(srv, &proxy{c: c, tell: also.Tell, life: life, work: &work, use: also.Use})
	agentpb.RegisterFilesServer(srv, &filesProxy{proxy: proxy{c: c}, transfer: also.Transfer})
	agentpb.RegisterDirectoriesServer(srv, &layerProxy{files: filesProxy{proxy: proxy{c: c}}})
	agentpb.RegisterConnectionsServer(srv, &connectProxy{proxy: proxy{c: c}})
	agentpb.RegisterFreezerServer(srv, &freezeProxy{proxy: proxy{c: c}})
	agentpb.RegisterContainersServer(srv, &containersProxy{proxy: proxy{c: c}, directories: also.Containers})
	agentpb.RegisterSearchServer(srv, &searchProxy{proxy: proxy{c: c}})
	if also.Jobs != nil {
		agentpb.RegisterJobsServer(srv, &jobsAdapter{jobs: also.Jobs})
	}
	if also.Ports != nil {
		agentpb.RegisterPortsServer(srv, &portsAdapter{ports: also.Ports})
	}
	if also.Supervisor != nil {
		agentpb.RegisterSupervisorServer(srv, &supervisorAdapter{server: also.Supervisor, ssh: also.SSH, save: also.Save})
	}
	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
	defer work.Wait()
	defer end()
	defer srv.Stop()
	if err := srv.Serve(lis); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the agent: %w", err)
	}
	return nil
}

// Handshake implements agentpb.AgentServer: it is refused.
func (p *proxy) Handshake(context.Context, *agentpb.HandshakeRequest) (*agentpb.HandshakeResponse, error) {
	return nil, status.Error(codes.PermissionDenied, "the session's owner has done the handshake")
}

// Shutdown implements agentpb.AgentServer: it is refused.
func (p *proxy) Shutdown(context.Context, *agentpb.ShutdownRequest) (*agentpb.ShutdownResponse, error) {
	return nil, status.Error(codes.PermissionDenied, "the machine is stopped through its supervisor")
}

// SetClock implements agentpb.AgentServer.
func (p *proxy) SetClock(ctx context.Context, r *agentpb.SetClockRequest) (*agentpb.SetClockResponse, error) {
	resp, err := p.c.api.SetClock(ctx, r)
	return resp, p.status(ctx, err)
}

// Stats implements agentpb.AgentServer.
func (p *proxy) Stats(ctx context.Context, r *agentpb.StatsRequest) (*agentpb.StatsResponse, error) {
	resp, err := p.c.api.Stats(ctx, r)
	return resp, p.status(ctx, err)
}

// Exec implements agentpb.AgentServer. Both directions pass one message at a
// time, so that a side that stops reading stops the other.
func (p *proxy) Exec(down agentpb.Agent_ExecServer) (err error) {
	ctx, cancel := context.WithCancel(p.life)
	defer func() { // for the guest the call is cancelled, which the client would take for the end of the session
		if end := down.Context().Err(); err != nil && errors.Is(end, context.DeadlineExceeded) {
			err = status.FromContextError(end).Err()
		}
	}()
	attached := context.AfterFunc(down.Context(), cancel) // until the client detaches
	up, err := p.c.api.Exec(ctx)
	if err != nil {
		cancel()
		return p.status(ctx, err)
	}
	first, err := down.Recv()
	switch {
	case errors.Is(err, io.EOF):
		_ = up.CloseSend() // as below: the guest says what is missing
	case err != nil:
		cancel()
		return err
	default:
		_ = up.Send(first) // its only error is the call's own
	}
	e := &proxiedExec{up: up, down: down, seen: p.c.witness(first.GetStart(), p.tell), left: make(chan struct{})}
	go e.sendUp(attached)
	ended := make(chan error, 1)
	done := used(p.use)
	p.work.Go(func() {
		defer done()
		defer cancel()
		defer e.seen.end()
		ended <- p.receive(ctx, e)
	})
	select {
	case err := <-ended:
		return err
	case <-e.left:
		e.mu.Lock() // until a message that is on its way to the client is sent
		defer e.mu.Unlock()
		return nil
	}
}

// proxiedExec is one call of Exec. When its client has detached, the guest's side goes on.
type proxiedExec struct {
	up   agentpb.Agent_ExecClient
	down agentpb.Agent_ExecServer
	seen *witnessed
	left chan struct{} // closed by detaching
	mu   sync.Mutex    // held while down is sent to
}

// sendUp passes the client's messages on until it leaves.
func (e *proxiedExec) sendUp(attached func() bool) {
	for {
		req, err := e.down.Recv()
		if errors.Is(err, io.EOF) {
			_ = e.up.CloseSend() // its only error is the call's own
			return
		}
		if _, detach := req.GetRequest().(*agentpb.ExecRequest_Detach); detach && err == nil {
			if attached() { // else the client has gone, and the process with it
				close(e.left)
			}
			return
		}
		if err != nil || e.up.Send(req) != nil {
			return
		}
	}
}

// sendDown passes a message of the guest's on, if there is a client.
func (e *proxiedExec) sendDown(resp *agentpb.ExecResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.left:
		return nil
	default:
		return e.down.Send(resp)
	}
}

// receive passes the guest's messages on until the process has ended.
func (p *proxy) receive(ctx context.Context, e *proxiedExec) error {
	var order execOrder
	for {
		resp, err := e.up.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return p.status(ctx, err)
		}
		if err := order.check(resp); err != nil {
			return p.status(ctx, p.c.fail(err))
		}
		e.seen.saw(resp)
		if err := e.sendDown(resp); err != nil {
			return err
		}
	}
}

// status passes a call's error on with a code that Attach's side translates back.
func (p *proxy) status(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return statusOf(p.c.callError(ctx, err))
}

// statusOf is an error of this package as a status.
func statusOf(err error) error {
	for _, s := range []struct {
		sentinel error
		code     codes.Code
	}{
		{ErrAgentDead, codes.Unavailable},
		{ErrClosed, codes.Unavailable},
		{ErrBusy, codes.ResourceExhausted},
		{ErrPaused, codes.OutOfRange},
		{ErrRefused, codes.InvalidArgument},
		{ErrTimeout, codes.DeadlineExceeded},
		{context.DeadlineExceeded, codes.DeadlineExceeded}, // the caller's, which the message brings with it
		{context.Canceled, codes.Unavailable},              // Serve ends: a client that cancelled hears nothing
	} {
		if errors.Is(err, s.sentinel) {
			// The other side adds the sentinel's words by itself.
			text := strings.TrimSuffix(err.Error(), refusedBefore+ErrRefused.Error()+refusedAfter)
			return status.Error(s.code, strings.TrimPrefix(text, s.sentinel.Error()+": "))
		}
	}
	return status.Error(codes.Internal, strings.TrimPrefix(err.Error(), ErrProtocol.Error()+": ")) // ErrProtocol, ErrTooLarge
}
