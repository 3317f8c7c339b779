package agentclient

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// attach serves c on a unix socket and opens a session through it.
func attach(t *testing.T, c *Client) *Client {
	t.Helper()
	return attachTold(t, c, nil)
}

func attachTold(t *testing.T, c *Client, tell func(ExecEvent)) *Client {
	t.Helper()
	return attachUntil(t.Context(), t, c, tell)
}

// attachUntil is attachTold, served until ctx ends.
func attachUntil(ctx context.Context, t *testing.T, c *Client, tell func(ExecEvent)) *Client {
	t.Helper()
	lis, err := net.Listen("unix", filepath.Join(t.TempDir(), "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, lis, c, Services{Tell: tell}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	conn, err := net.Dial("unix", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := Attach(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// echoExec answers with its stdin, and the signals it got on stderr.
func echoExec(s agentpb.Agent_ExecServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	if err := s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Started{Started: &agentpb.Started{StdinWindow: 3}}}); err != nil {
		return err
	}
	for {
		req, err := s.Recv()
		if err != nil {
			return err
		}
		switch r := req.GetRequest().(type) {
		case *agentpb.ExecRequest_Stdin:
			if err := s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Stdout{Stdout: r.Stdin}}); err != nil {
				return err
			}
			if err := s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_StdinAck{StdinAck: uint32(len(r.Stdin))}}); err != nil {
				return err
			}
		case *agentpb.ExecRequest_StdinEof:
			return s.Send(exit(&agentpb.Exit{Code: 7}))
		}
	}
}

func TestProxyPassesAnExecOn(t *testing.T) {
	t.Parallel()
	a := attach(t, dialFake(t, &fakeAgent{exec: echoExec, stats: func() (*agentpb.StatsResponse, error) {
		return &agentpb.StatsResponse{Processes: 5}, nil
	}}))
	var out bytes.Buffer
	st, err := a.Exec(t.Context(), ExecOptions{Argv: []string{"x"}, Stdin: strings.NewReader("hello over there"), Stdout: &out})
	if err != nil || st.Code != 7 || out.String() != "hello over there" {
		t.Errorf("got %+v, %v, %q", st, err, out.String())
	}
	if s, err := a.Stats(t.Context()); err != nil || s.Processes != 5 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestProxyKeepsHandshakeAndShutdown(t *testing.T) {
	t.Parallel()
	c := dialFake(t, &fakeAgent{})
	a := attach(t, c)
	if err := a.Shutdown(t.Context()); !errors.Is(err, ErrRefused) {
		t.Errorf("shutdown: %v", err)
	}
	if _, err := a.api.Handshake(t.Context(), &agentpb.HandshakeRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("handshake: %v", err)
	}
	if c.Err() != nil {
		t.Errorf("the session ended: %v", c.Err())
	}
}

func TestProxyNamesErrorsAlike(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		exec func(agentpb.Agent_ExecServer) error
		want error
	}{
		"refused":  {func(agentpb.Agent_ExecServer) error { return status.Error(codes.InvalidArgument, "no such user") }, ErrRefused},
		"busy":     {func(agentpb.Agent_ExecServer) error { return status.Error(codes.ResourceExhausted, "full") }, ErrBusy},
		"protocol": {func(s agentpb.Agent_ExecServer) error { return s.Send(unknown) }, ErrProtocol},
		"huge":     {func(s agentpb.Agent_ExecServer) error { return s.Send(huge) }, ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			a := attach(t, dialFake(t, &fakeAgent{exec: tt.exec}))
			_, err := a.Exec(t.Context(), ExecOptions{Argv: []string{"x"}})
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if name == "refused" && err.Error() != "no such user (guest agent refused the request)" {
				t.Errorf("got %v, want the cause first, and the refusal once", err)
			}
		})
	}
	t.Run("closed", func(t *testing.T) {
		c := dialFake(t, &fakeAgent{exec: echoExec})
		a := attach(t, c)
		c.Close()
		if _, err := a.Exec(t.Context(), ExecOptions{Argv: []string{"x"}}); !errors.Is(err, ErrAgentDead) {
			t.Errorf("got %v", err)
		}
	})
}

// TestCommandsEndWithTheirSupervisor: whichever of its calls and its connection ends first, the session is over.
func TestCommandsEndWithTheirSupervisor(t *testing.T) {
	t.Parallel()
	for range 50 {
		ctx, end := context.WithCancel(t.Context())
		a := attachUntil(ctx, t, dialFake(t, &fakeAgent{exec: echoExec}), nil)
		_, err := a.Exec(t.Context(), ExecOptions{Argv: []string{"x"}, OnStart: end})
		if !errors.Is(err, ErrAgentDead) || a.Err() == nil {
			t.Fatalf("got %v, the session's end %v", err, a.Err())
		}
	}
}

// earlyContext has a deadline that the other end counts alone, as if its clock were ahead.
type earlyContext struct {
	context.Context
	at time.Time
}

// Deadline implements context.Context.
func (c earlyContext) Deadline() (time.Time, bool) { return c.at, true }

// TestDeadlinesEndNoSession: where the supervisor saw a caller's deadline before the caller did, the guest seemed to be
// gone.
func TestDeadlinesEndNoSession(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	t.Cleanup(func() { close(held) })
	c := dialFake(t, &fakeAgent{
		exec:  func(s agentpb.Agent_ExecServer) error { <-s.Context().Done(); return s.Context().Err() },
		stats: func() (*agentpb.StatsResponse, error) { <-held; return &agentpb.StatsResponse{}, nil },
	})
	a := attach(t, c)
	for name, call := range map[string]func(context.Context) error{
		"exec":  func(ctx context.Context) error { _, err := a.Exec(ctx, ExecOptions{Argv: []string{"x"}}); return err },
		"stats": func(ctx context.Context) error { _, err := a.Stats(ctx); return err },
	} {
		for range 50 { // the supervisor's answer and its reset of the call come at once, in either order
			err := call(earlyContext{t.Context(), time.Now().Add(5 * time.Millisecond)})
			if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || a.Err() != nil || c.Err() != nil {
				t.Fatalf("%s: %v; the session's end %v, the supervisor's %v", name, err, a.Err(), c.Err())
			}
		}
	}
}

// TestProxyReportsViolationsOnce: its sentence came with the sentinel's words, and got them again on the other side.
func TestProxyReportsViolationsOnce(t *testing.T) {
	t.Parallel()
	a := attach(t, dialFake(t, &fakeAgent{stats: func() (*agentpb.StatsResponse, error) {
		return nil, status.Error(codes.Internal, "a stranger\u200b\u2028\u2029\u202e\ufeff")
	}}))
	_, err := a.Stats(t.Context())
	if want := ErrProtocol.Error() + ": a stranger?????"; !errors.Is(err, ErrProtocol) || err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}
