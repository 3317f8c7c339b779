package agentclient

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/handoff"
)

// TestReadingFiguresIsNoUse counts what clients of Serve do. Its twin is the call that is a use.
func TestReadingFiguresIsNoUse(t *testing.T) {
	t.Parallel()
	guest := dialFake(t, &fakeAgent{exec: echoExec, stats: func() (*agentpb.StatsResponse, error) { return &agentpb.StatsResponse{}, nil }})
	var began, ended atomic.Int64
	use := func() func() { began.Add(1); return func() { ended.Add(1) } }
	a, b := net.Pipe()
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, handoff.Of(a), guest, Services{Use: use}) }()
	c, err := Attach(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stats(t.Context()); err != nil || began.Load() != 0 {
		t.Errorf("%v, %d uses", err, began.Load())
	}
	if _, err := c.Exec(t.Context(), ExecOptions{Argv: []string{"cat"}, Stdin: strings.NewReader("x")}); err != nil || began.Load() == 0 {
		t.Errorf("%v, %d uses", err, began.Load())
	}
	_ = c.Close()
	end()
	<-served
	if began.Load() != ended.Load() {
		t.Errorf("%d uses began, %d ended", began.Load(), ended.Load())
	}
}

// TestPausedGuestsAreAskedNothing: its twin is the same guest before and after.
func TestPausedGuestsAreAskedNothing(t *testing.T) {
	t.Parallel()
	asked := new(atomic.Int64)
	guest := dialFake(t, &fakeAgent{exec: echoExec, stats: func() (*agentpb.StatsResponse, error) { asked.Add(1); return &agentpb.StatsResponse{}, nil }})
	var paused atomic.Bool
	a, b := net.Pipe()
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, handoff.Of(a), guest, Services{Refuse: func() error {
			if paused.Load() {
				return ErrPaused
			}
			return nil
		}})
	}()
	c, err := Attach(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{nil, ErrPaused, nil} {
		paused.Store(want != nil)
		before := asked.Load()
		if _, err := c.Stats(t.Context()); !errors.Is(err, want) || (asked.Load() == before) != (want != nil) {
			t.Errorf("figures: %v, asked %d times; want %v", err, asked.Load()-before, want)
		}
		if _, err := c.Exec(t.Context(), ExecOptions{Argv: []string{"cat"}, Stdin: strings.NewReader("x")}); !errors.Is(err, want) {
			t.Errorf("a command: %v, want %v", err, want)
		}
		if want == nil {
			continue // the fake has no files, which would end the session
		}
		if _, err := c.Files().Stat(t.Context(), "/", false); !errors.Is(err, want) {
			t.Errorf("a file: %v, want %v", err, want)
		}
	}
	_ = c.Close()
	end()
	<-served
}

// figures are of a supervisor that nobody asks for any.
type figures struct{ SupervisorServer }

// echoSSH is an SSH server that sends back what it gets.
func echoSSH(conn io.ReadWriteCloser, notice func(string)) error {
	notice("a notice\x1b")
	_, err := io.Copy(conn, conn)
	return errors.Join(err, errors.New("its end"))
}

// TestSSHIsCarried sends bytes both ways, the end of one, a notice and an error. A connection is a use.
func TestSSHIsCarried(t *testing.T) {
	t.Parallel()
	guest := dialFake(t, &fakeAgent{})
	var uses atomic.Int64
	use := func() func() { uses.Add(1); return func() { uses.Add(-1) } }
	a, b := net.Pipe()
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, handoff.Of(a), guest, Services{Supervisor: figures{}, SSH: echoSSH, Use: use})
	}()
	c, err := Attach(b)
	if err != nil {
		t.Fatal(err)
	}
	sent := strings.Repeat("0123456789abcdef", 1<<16)
	in, write := io.Pipe()
	go func() { _, _ = io.WriteString(write, sent); write.Close() }()
	var got strings.Builder
	var notices []string
	used := false
	err = c.SSH(t.Context(), in, writerFunc(func(p []byte) (int, error) {
		used = used || uses.Load() == 1 // the last bytes come when the call has ended
		return got.Write(p)
	}), func(text string) { notices = append(notices, text) })
	if err == nil || err.Error() != "its end" || got.String() != sent || len(notices) != 1 || notices[0] != "a notice?" {
		t.Errorf("%d bytes came back, notices %q, %v", got.Len(), notices, err)
	}
	_ = c.Close()
	end()
	<-served
	if !used || uses.Load() != 0 {
		t.Errorf("it was a use: %t; %d go on", used, uses.Load())
	}
}

// deafClient is the call of an SSH client that sends nothing and takes nothing.
type deafClient struct {
	grpc.ServerStream
	gone chan struct{}
}

func (c deafClient) Recv() (*agentpb.SSHRequest, error) { <-c.gone; return nil, io.EOF }
func (c deafClient) Send(*agentpb.SSHResponse) error    { <-c.gone; return io.EOF }

// TestI11_DeafSSHClientsAreNotAwaited: a client that reads nothing does not keep the call of a server that has ended.
func TestI11_DeafSSHClientsAreNotAwaited(t *testing.T) {
	t.Parallel()
	for _, end := range []error{nil, errors.New("its end"), ErrClosed} {
		synctest.Test(t, func(t *testing.T) {
			client := deafClient{gone: make(chan struct{})}
			a := &supervisorAdapter{ssh: func(conn io.ReadWriteCloser, _ func(string)) error {
				_, err := io.WriteString(conn, "for nobody")
				return errors.Join(err, end)
			}}
			ended := make(chan error, 1)
			go func() { ended <- a.SSH(client) }()
			select {
			case <-ended:
			case <-time.After(6 * time.Second): // a little more than it may wait
				t.Errorf("%v: the call goes on", end)
			}
			close(client.gone)
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestOldSupervisorsHaveNoSSH: one that was started by an msb of before doesn't know the call.
func TestOldSupervisorsHaveNoSSH(t *testing.T) {
	t.Parallel()
	guest := dialFake(t, &fakeAgent{})
	a, b := net.Pipe()
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, handoff.Of(a), guest, Services{Supervisor: figures{}}) }()
	c, err := Attach(b)
	if err != nil {
		t.Fatal(err)
	}
	in, write := io.Pipe()
	defer write.Close()
	if err := c.SSH(t.Context(), in, io.Discard, nil); err == nil || !strings.Contains(err.Error(), "started by an older msb; stop and start it") {
		t.Errorf("got %v", err)
	}
	_ = c.Close()
	end()
	<-served
}
