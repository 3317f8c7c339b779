package sshd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

type direct struct {
	Host       string
	Port       uint32
	Origin     string
	OriginPort uint32
}

// TestI1_ForwardingLeadsToLoopback asks for connections into the guest, and for others that would leave it.
func TestI1_ForwardingLeadsToLoopback(t *testing.T) {
	t.Parallel()
	g := waits()
	asked := make(chan netip.AddrPort, 2)
	connect := g.connect
	g.connect = func(ctx context.Context, to netip.AddrPort) (Conn, error) {
		asked <- to
		return connect(ctx, to)
	}
	s := serve(t, g)
	for to, want := range map[direct]string{
		{Host: "localhost", Port: 80}: "127.0.0.1:80", {Host: "box", Port: 80}: "127.0.0.1:80", {Host: "127.0.0.1", Port: 80}: "127.0.0.1:80", {Host: "127.9.9.9", Port: 1}: "127.9.9.9:1",
		{Host: "::1", Port: 80}: "[::1]:80", {Host: "::ffff:127.0.0.1", Port: 80}: "127.0.0.1:80", {Host: "127.0.0.1", Port: 65535}: "127.0.0.1:65535",
	} {
		c, _, err := s.OpenChannel("direct-tcpip", ssh.Marshal(to))
		if err != nil {
			t.Errorf("%+v: %v", to, err)
			continue
		}
		if got := <-asked; got.String() != want {
			t.Errorf("%+v: connected to %s", to, got)
		}
		c.Close()
	}
	for _, d := range []direct{
		{Host: "192.0.2.1", Port: 80}, {Host: "169.254.169.254", Port: 80}, {Host: "example.com", Port: 80}, {Host: "localhost.", Port: 80}, {Host: "other", Port: 80},
		{Host: "0.0.0.0", Port: 80}, {Host: "::", Port: 80}, {Host: "::1%eth0", Port: 80}, {Host: "", Port: 80}, {Host: "127.1", Port: 80}, {Host: "10.0.2.15", Port: 80},
		{Host: "127.0.0.1", Port: 0}, {Host: "127.0.0.1", Port: 1 << 16}, {Host: "127.0.0.1", Port: 1<<16 + 80},
	} {
		var refused *ssh.OpenChannelError
		if _, _, err := s.OpenChannel("direct-tcpip", ssh.Marshal(d)); !errors.As(err, &refused) || refused.Reason != ssh.Prohibited {
			t.Errorf("%+v: got %v", d, err)
		}
	}
	var refused *ssh.OpenChannelError
	if _, _, err := s.OpenChannel("direct-tcpip", []byte{1}); !errors.As(err, &refused) || refused.Reason != ssh.ConnectionFailed {
		t.Errorf("a request that can't be read: got %v", err)
	}
	select {
	case to := <-asked:
		t.Errorf("the guest was asked for %s", to)
	default:
	}
}

// TestI1_BackwardForwardingIsRefused asks for reverse, agent, X11 and Unix socket forwarding.
func TestI1_BackwardForwardingIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, waits())
	for name, payload := range map[string][]byte{
		"tcpip-forward": ssh.Marshal(struct {
			Host string
			Port uint32
		}{"localhost", 8080}),
		"streamlocal-forward@openssh.com": ssh.Marshal(struct{ Path string }{"/tmp/s"}),
		"anything":                        nil,
	} {
		if ok, _, err := s.SendRequest(name, true, payload); ok || err != nil {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
	}
	if _, err := s.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("the guest listens for the client")
	}
	for _, kind := range []string{"direct-streamlocal@openssh.com", "tun@openssh.com", "x11", "auth-agent@openssh.com", "forwarded-tcpip", ""} {
		var refused *ssh.OpenChannelError
		if _, _, err := s.OpenChannel(kind, ssh.Marshal(struct {
			Path, A string
			B       uint32
		}{"/run/s", "", 0})); !errors.As(err, &refused) || refused.Reason != ssh.UnknownChannelType {
			t.Errorf("%q: got %v", kind, err)
		}
	}
	channel, requests, err := s.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(requests)
	for _, name := range []string{"auth-agent-req@openssh.com", "x11-req", "auth-agent-req", "break"} {
		if ok, err := channel.SendRequest(name, true, nil); ok || err != nil {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
	}
	if ok, err := channel.SendRequest("shell", true, nil); !ok || err != nil { // the session itself works
		t.Errorf("shell: %t, %v", ok, err)
	}
}

// TestOnlyTheSandboxesKeyOpens shows another sandbox's key, a password, and nothing.
func TestOnlyTheSandboxesKeyOpens(t *testing.T) {
	t.Parallel()
	serve(t, waits()) // the twin: its own key
	other := t.TempDir()
	if _, err := OpenKeys(other); err != nil {
		t.Fatal(err)
	}
	for what, auth := range map[string][]ssh.AuthMethod{
		"another sandbox's": {ssh.PublicKeys(clientKey(t, other))}, "a password": {ssh.Password("")}, "nothing": nil,
	} {
		if _, err := tryServe(t, waits(), func(_ *Server, c *ssh.ClientConfig) { c.Auth = auth }); err == nil {
			t.Errorf("%s opened a session", what)
		}
	}
}

// TestI11_ChannelsAreBounded opens as many sessions and connections as docs/ssh.md says, and one more of each.
func TestI11_ChannelsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, waits())
	for kind, most := range map[string]int{"session": 32, "direct-tcpip": 64} {
		payload := ssh.Marshal(direct{Host: "localhost", Port: 80})
		for n := range most {
			if _, _, err := s.OpenChannel(kind, payload); err != nil {
				t.Fatalf("%s %d: %v", kind, n, err)
			}
		}
		var refused *ssh.OpenChannelError
		if _, _, err := s.OpenChannel(kind, payload); !errors.As(err, &refused) || refused.Reason != ssh.ResourceShortage {
			t.Errorf("%s: one too many: %v", kind, err)
		}
	}
}

// TestI11_VariablesAreBounded sets more and longer ones than a session keeps.
func TestI11_VariablesAreBounded(t *testing.T) {
	t.Parallel()
	session := serve(t, waits()).session(t)
	long := strings.Repeat("x", 4096-len("LANG="))
	if session.Setenv("LANG", long+"x") == nil {
		t.Error("a long one was kept")
	}
	if err := session.Setenv("LANG", long); err != nil {
		t.Errorf("one that is as long as it may be: %v", err)
	}
	for n := range 63 {
		if err := session.Setenv("LANG", fmt.Sprint(n)); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
	}
	if session.Setenv("LANG", "x") == nil {
		t.Error("one too many was kept")
	}
}

// TestForwardingTriesBothLoopbacks: a server may listen at one of them only.
func TestForwardingTriesBothLoopbacks(t *testing.T) {
	t.Parallel()
	g := waits()
	only, connect := "[::1]:80", g.connect
	g.connect = func(ctx context.Context, to netip.AddrPort) (Conn, error) {
		if to.String() != only {
			return nil, errors.New("refused at " + to.String())
		}
		return connect(ctx, to)
	}
	s := serve(t, g)
	if _, _, err := s.OpenChannel("direct-tcpip", ssh.Marshal(direct{Host: "localhost", Port: 80})); err != nil {
		t.Error(err)
	}
	var refused *ssh.OpenChannelError
	if _, _, err := s.OpenChannel("direct-tcpip", ssh.Marshal(direct{Host: "localhost", Port: 81})); !errors.As(err, &refused) || refused.Reason != ssh.ConnectionFailed || refused.Message != "refused at 127.0.0.1:81" {
		t.Errorf("got %v", err)
	}
}

// endingConn is a server of the guest's that has ended its direction and reads on.
type endingConn struct {
	net.Conn
	how  error
	sent chan string
}

func (c *endingConn) Read([]byte) (int, error) { return 0, c.how }
func (c *endingConn) CloseWrite() error        { return nil }
func (c *endingConn) Write(b []byte) (int, error) {
	c.sent <- string(b)
	return len(b), nil
}

// TestResetsEndTheChannel: SSH has no reset, so that a server's ends the channel, where an orderly end (the twin) leaves the
// client's direction open.
func TestResetsEndTheChannel(t *testing.T) {
	t.Parallel()
	for _, how := range []error{io.EOF, syscall.ECONNRESET} {
		g := waits()
		conn := &endingConn{how: how, sent: make(chan string, 1)}
		g.connect = func(context.Context, netip.AddrPort) (Conn, error) {
			near, far := net.Pipe()
			t.Cleanup(func() { near.Close(); far.Close() })
			conn.Conn = near
			return conn, nil
		}
		channel, requests, err := serve(t, g).OpenChannel("direct-tcpip", ssh.Marshal(direct{Host: "localhost", Port: 80}))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := channel.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("%v: %d bytes, %v", how, n, err)
		}
		if errors.Is(how, io.EOF) {
			if _, err := channel.Write([]byte("x")); err != nil || <-conn.sent != "x" {
				t.Errorf("the client's direction has ended too: %v", err)
			}
			continue
		}
		select {
		case _, open := <-requests:
			if open {
				t.Error("a request came")
			}
		case <-time.After(20 * time.Second):
			t.Error("a reset looks like an orderly end")
		}
	}
}

// TestI11_ClientsThatGoLeaveNothing: a guest that never answers must not keep the server.
func TestI11_ClientsThatGoLeaveNothing(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	begun := make(chan struct{})
	s := serve(t, &fakeGuest{connect: func(ctx context.Context, _ netip.AddrPort) (Conn, error) {
		if asked.Add(1) == 1 {
			close(begun)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	go func() { _, _, _ = s.OpenChannel("direct-tcpip", ssh.Marshal(direct{Host: "127.0.0.1", Port: 80})) }()
	<-begun
	s.Close()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	late := make(chan net.Conn, 1)
	gone := serve(t, &fakeGuest{connect: func(ctx context.Context, _ netip.AddrPort) (Conn, error) {
		ours, theirs := net.Pipe()
		late <- theirs
		<-ctx.Done() // the guest has a connection, for a client that has gone
		return pipeConn{ours}, nil
	}})
	go func() { _, _, _ = gone.OpenChannel("direct-tcpip", ssh.Marshal(direct{Host: "127.0.0.1", Port: 80})) }()
	theirs := <-late
	gone.Close()
	if err := <-gone.ended; err != nil {
		t.Error(err)
	}
	_ = theirs.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the guest's server still has the connection of a client that has gone: %v", err)
	}
	quiet := serve(t, &fakeGuest{connect: func(context.Context, netip.AddrPort) (Conn, error) {
		ours, theirs := net.Pipe() // a server that says nothing and reads nothing
		t.Cleanup(func() { theirs.Close() })
		return pipeConn{ours}, nil
	}})
	if _, _, err := quiet.OpenChannel("direct-tcpip", ssh.Marshal(direct{Host: "127.0.0.1", Port: 80})); err != nil {
		t.Fatal(err)
	}
	quiet.Close()
	if err := <-quiet.ended; err != nil {
		t.Error(err)
	}
}
