package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// proxy serves a session on: everything but Handshake and Shutdown, which stay
// with the process that owns the machine.
type proxy struct {
	agentpb.UnimplementedAgentServer
	c    *Client
	tell func(ExecEvent) // may be nil
}

var _ agentpb.AgentServer = (*proxy)(nil)

// Proxy is a server whose calls go to c's guest. Clients of it open their
// session with Attach. Who may connect is the caller's business.
func Proxy(c *Client) agentpb.AgentServer { return &proxy{c: c} }

// maxProxyCalls bounds the calls of one proxy client: above what the guest
// itself allows, so that it is the guest's limit that is met.
const maxProxyCalls = 1024

// proxyGreeting is how long a proxy client may take for its first bytes.
const proxyGreeting = 5 * time.Second

// Services are what Serve's clients get beside the guest: nil for none.
type Services struct {
	Jobs  JobServer
	Ports PortServer
	// Tell hears of the processes that clients run, jobs excepted, and returns at once.
	Tell func(ExecEvent)
}

// Serve answers clients on lis with c's guest and the services, until ctx ends or lis fails. It closes lis and returns when
// every connection is closed.
func Serve(ctx context.Context, lis net.Listener, c *Client, also Services) error {
	srv := grpc.NewServer(
		grpc.MaxRecvMsgSize(agentpb.MaxMessageBytes), grpc.MaxSendMsgSize(agentpb.MaxMessageBytes),
		grpc.MaxHeaderListSize(agentpb.MaxHeaderBytes), grpc.MaxConcurrentStreams(maxProxyCalls),
		grpc.InitialWindowSize(agentpb.StreamWindowBytes), grpc.InitialConnWindowSize(agentpb.ConnWindowBytes),
		grpc.WaitForHandlers(true),
		// A client that says nothing would hold up the end for two minutes.
		grpc.ConnectionTimeout(proxyGreeting),
	)
	agentpb.RegisterAgentServer(srv, &proxy{c: c, tell: also.Tell})
	agentpb.RegisterFilesServer(srv, &filesProxy{proxy: proxy{c: c}})
	if also.Jobs != nil {
		agentpb.RegisterJobsServer(srv, &jobsAdapter{jobs: also.Jobs})
	}
	if also.Ports != nil {
		agentpb.RegisterPortsServer(srv, &portsAdapter{ports: also.Ports})
	}
	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
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
func (p *proxy) Exec(down agentpb.Agent_ExecServer) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := p.c.api.Exec(ctx)
	if err != nil {
		return p.status(ctx, err)
	}
	first, err := down.Recv()
	switch {
	case errors.Is(err, io.EOF):
		_ = up.CloseSend() // as below: the guest says what is missing
	case err != nil:
		return err
	default:
		_ = up.Send(first) // its only error is the call's own
	}
	seen := p.c.witness(first.GetStart(), p.tell)
	defer seen.end()
	go func() {
		for {
			req, err := down.Recv()
			if errors.Is(err, io.EOF) {
				_ = up.CloseSend() // its only error is the call's own
				return
			}
			if err != nil || up.Send(req) != nil {
				return
			}
		}
	}()
	var order execOrder
	for {
		resp, err := up.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return p.status(ctx, err)
		}
		if err := order.check(resp); err != nil {
			return p.status(ctx, p.c.fail(err))
		}
		seen.saw(resp)
		if err := down.Send(resp); err != nil {
			return err
		}
	}
}

// status passes a call's error on with a code that Attach's side names alike.
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
		{ErrRefused, codes.InvalidArgument},
		{ErrTimeout, codes.DeadlineExceeded},
		{context.Canceled, codes.Canceled},
	} {
		if errors.Is(err, s.sentinel) {
			// The other side adds the sentinel's words by itself.
			text := strings.TrimSuffix(err.Error(), refusedBefore+ErrRefused.Error()+refusedAfter)
			return status.Error(s.code, strings.TrimPrefix(text, s.sentinel.Error()+": "))
		}
	}
	return status.Error(codes.Internal, strings.TrimPrefix(err.Error(), ErrProtocol.Error()+": ")) // ErrProtocol, ErrTooLarge
}
