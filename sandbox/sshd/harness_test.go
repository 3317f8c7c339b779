package sshd

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// fakeGuest is a guest that does what a test says.
type fakeGuest struct {
	exec    func(context.Context, agentclient.ExecOptions) (agentclient.ExitStatus, error)
	connect func(context.Context, netip.AddrPort) (Conn, error)
	listen  func(context.Context, agentclient.ListenOptions) (Listener, error) // nil: the policy allows none
}

func (g *fakeGuest) Listen(ctx context.Context, o agentclient.ListenOptions) (Listener, error) {
	if g.listen == nil {
		return nil, errors.New("the policy has nothing of it in [ssh]")
	}
	return g.listen(ctx, o)
}

func (g *fakeGuest) Exec(ctx context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
	return g.exec(ctx, o)
}

func (g *fakeGuest) Connect(ctx context.Context, to netip.AddrPort) (Conn, error) {
	return g.connect(ctx, to)
}

// waits is a guest whose commands and connections wait until their client goes.
func waits() *fakeGuest {
	return &fakeGuest{
		exec: func(ctx context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
			select {
			case n := <-o.Signals:
				return agentclient.ExitStatus{Code: 128 + int(n), Signal: n}, nil
			case <-ctx.Done():
				return agentclient.ExitStatus{}, ctx.Err()
			}
		},
		connect: func(context.Context, netip.AddrPort) (Conn, error) {
			ours, theirs := net.Pipe()
			go func() { _, _ = theirs.Read(make([]byte, 1)); theirs.Close() }()
			return pipeConn{ours}, nil
		},
	}
}

type pipeConn struct{ net.Conn }

func (p pipeConn) CloseWrite() error { return p.Close() }

// clientKey reads the key that a sandbox's client shows.
func clientKey(t *testing.T, dir string) ssh.Signer {
	t.Helper()
	key, err := openKey(filepath.Join(dir, state.SSHClientKey))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// served is a client and the server that it speaks to.
type served struct {
	*ssh.Client
	server *Server
	config *ssh.ClientConfig
	ended  chan error
}

// serve starts a server for g, and a client of it. change may make either another one.
func serve(t *testing.T, g Guest, change ...func(*Server, *ssh.ClientConfig)) *served {
	t.Helper()
	s, err := tryServe(t, g, change...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tryServe(t *testing.T, g Guest, change ...func(*Server, *ssh.ClientConfig)) (*served, error) {
	t.Helper()
	dir := t.TempDir()
	keys, err := OpenKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &served{server: &Server{Guest: g, Dir: dir, Name: "box", User: "app", hangup: 10 * time.Millisecond}}
	s.config = &ssh.ClientConfig{
		User: anyUser, Auth: []ssh.AuthMethod{ssh.PublicKeys(clientKey(t, dir))},
		HostKeyCallback: ssh.FixedHostKey(keys.host.PublicKey()),
	}
	for _, c := range change {
		c(s.server, s.config)
	}
	return s.another(t)
}

// another is another client of the same server.
func (s *served) another(t *testing.T) (*served, error) {
	t.Helper()
	near, ended := connect(t, t.Context(), s.server)
	conn, channels, requests, err := ssh.NewClientConn(near, "box", s.config)
	t.Cleanup(func() { near.Close() })
	if err != nil {
		return nil, err
	}
	return &served{ssh.NewClient(conn, channels, requests), s.server, s.config, ended}, nil
}

// closing notes that it was closed: one that is forgotten is closed by the garbage collector.
type closing struct {
	net.Conn
	closed atomic.Bool
}

func (c *closing) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// connect opens a connection to a server, which has ended when the test does.
func connect(t *testing.T, ctx context.Context, server *Server) (near net.Conn, ended chan error) {
	t.Helper()
	return connectNoticing(t, ctx, server, nil)
}

// connectNoticing is connect for a client that gets notices.
func connectNoticing(t *testing.T, ctx context.Context, server *Server, notice func(string)) (near net.Conn, ended chan error) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() {
		conn := &closing{Conn: far}
		err := server.Serve(ctx, conn, notice)
		if !conn.closed.Load() {
			t.Error("the client has gone, and its connection is open")
		}
		ended <- err
		close(ended)
	}()
	t.Cleanup(func() { near.Close(); <-ended; server.holdsNothing(t) })
	return near, ended
}

// holdsNothing fails the test if a server without clients still counts channels as open: later clients would lack them.
func (s *Server) holdsNothing(t *testing.T) {
	t.Helper()
	if n := s.channels.Load(); s.clients.Load() == 0 && n != 0 {
		t.Errorf("no client is connected, and %d channels count as open", n)
	}
}

// session opens a session, or fails the test.
func (s *served) session(t *testing.T) *ssh.Session {
	t.Helper()
	session, err := s.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// status is the exit status in what a command ended with.
func status(err error) int {
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		return exit.ExitStatus()
	}
	if err != nil {
		return -1
	}
	return 0
}
