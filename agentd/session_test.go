//go:build linux

package agentd

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/workload"
)

// fakeMachine lets the server run on the test's own machine.
type fakeMachine struct {
	mu        sync.Mutex
	request   *agentpb.HandshakeRequest
	configure error
	clock     time.Time
	ended     bool
	frozen    bool
	freeze    error
	slow      time.Duration // of a freeze
	upper     string
}

func (f *fakeMachine) Configure(_ context.Context, req *agentpb.HandshakeRequest) (env, warnings []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.request = req
	return req.GetEnv(), []string{"a warning"}, f.configure
}

func (f *fakeMachine) SetClock(t time.Time) (time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock = t
	if t.Unix() == 0 {
		return 0, errors.New("that is not a time")
	}
	return time.Second, nil
}

func (f *fakeMachine) Freeze() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen {
		return errors.New("it is frozen already")
	}
	time.Sleep(f.slow)
	f.frozen = true
	return f.freeze
}

func (f *fakeMachine) Thaw() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.frozen {
		return errors.New("it is not frozen")
	}
	f.frozen = false
	return nil
}

func (f *fakeMachine) Upper() (*os.Root, error) { return os.OpenRoot(f.upper) }

func (f *fakeMachine) Terminate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
}

func (*fakeMachine) Stats() *agentpb.StatsResponse { return &agentpb.StatsResponse{Processes: 7} }
func (*fakeMachine) Cgroup() *workload.Cgroup      { return nil }
func (*fakeMachine) Kernel() string                { return "test" }

// session is a server and a client on one pipe.
type session struct {
	*agentclient.Client
	machine *fakeMachine
	server  *server
	served  chan error
	host    net.Conn
}

// newSession starts a server; the pipe's host end is not used yet.
func newSession(t *testing.T, change ...func(*server)) *session {
	t.Helper()
	f := &fakeMachine{}
	s := newSessionOf(t, func(*workload.Thread) machineOps { return f }, change...)
	s.machine = f
	return s
}

// newSessionOf starts a server of a machine whose processes start where the thread stands.
func newSessionOf(t *testing.T, machine func(*workload.Thread) machineOps, change ...func(*server)) *session {
	t.Helper()
	host, port := net.Pipe()
	thread, reaper := workload.NewThread(), workload.NewReaper(false)
	s := &session{server: newServer(machine(thread), workload.NewSpawner(thread, reaper)), served: make(chan error, 1), host: host}
	for _, c := range change {
		c(s.server)
	}
	go func() { s.served <- s.server.serve(port) }()
	t.Cleanup(func() {
		host.Close()
		<-s.served
		thread.Close()
		reaper.Close()
		goleak.VerifyNone(t, goleak.IgnoreTopFunction("os/signal.signal_recv"), goleak.IgnoreTopFunction("os/signal.loop"))
	})
	return s
}

// dial opens a session with a handshake.
func dial(t *testing.T, opts agentclient.Options, change ...func(*server)) *session {
	t.Helper()
	s := newSession(t, change...)
	if err := s.handshake(t, opts); err != nil {
		t.Fatalf("handshake: %v", err)
	}
	return s
}

func (s *session) handshake(t *testing.T, opts agentclient.Options) error {
	t.Helper()
	client, err := agentclient.Dial(t.Context(), s.host, opts)
	if err == nil {
		s.Client = client
		t.Cleanup(func() { client.Close() })
	}
	return err
}

// result is what an exec gave.
type result struct {
	agentclient.ExitStatus
	out, err string
}

func (s *session) run(t *testing.T, opts agentclient.ExecOptions) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if opts.Stdout == nil {
		opts.Stdout = &stdout
	}
	if opts.Stderr == nil {
		opts.Stderr = &stderr
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	starts, told := 0, opts.OnStart
	opts.OnStart = func() {
		starts++
		if told != nil {
			told()
		}
	}
	st, err := s.Exec(ctx, opts)
	if err != nil {
		t.Fatalf("exec %q: %v", opts.Argv, err)
	}
	if (starts == 1) != (st.StartError == agentclient.Started) || starts > 1 {
		t.Errorf("exec %q: %+v, and its start was told %d times", opts.Argv, st, starts)
	}
	return result{st, stdout.String(), stderr.String()}
}

func script(text string) agentclient.ExecOptions {
	return agentclient.ExecOptions{Argv: []string{"/bin/sh", "-c", text}}
}
