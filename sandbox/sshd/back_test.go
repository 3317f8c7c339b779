package sshd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/msb-project/msb/agentd/agentclient"
)

// TestMain lets the test's program be the ProxyCommand of OpenSSH's client: it joins its standard streams to a socket.
func TestMain(m *testing.M) {
	if path := os.Getenv("MSB_TEST_JOIN"); path != "" {
		c, err := net.Dial("unix", path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go func() { _, _ = io.Copy(c, os.Stdin); os.Exit(0) }()
		_, _ = io.Copy(os.Stdout, c)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// localGuest is a guest that is this machine: commands run here, and listeners listen here.
func localGuest(t *testing.T, allowed ...agentclient.Back) *fakeGuest {
	t.Helper()
	g := waits()
	g.exec = func(ctx context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
		if o.Argv[0] == "xauth" {
			b, err := io.ReadAll(o.Stdin)
			if !strings.HasPrefix(string(b), "add unix:") {
				t.Errorf("xauth is told %q", b)
			}
			return agentclient.ExitStatus{}, err
		}
		cmd := exec.CommandContext(ctx, o.Argv[0], o.Argv[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr = append([]string{"PATH=" + os.Getenv("PATH")}, o.Env...), o.Stdout, o.Stderr
		_ = cmd.Run()
		return agentclient.ExitStatus{Code: cmd.ProcessState.ExitCode()}, nil
	}
	g.listen = func(_ context.Context, o agentclient.ListenOptions) (Listener, error) {
		if !slices.Contains(allowed, o.Back) {
			return nil, fmt.Errorf("the policy has no %s in [ssh]", o.Back)
		}
		l := &localListener{open: map[net.Conn]bool{}}
		var err error
		switch o.Back {
		case agentclient.BackAgent:
			l.path = filepath.Join(t.TempDir(), "agent")
			l.l, err = net.Listen("unix", l.path)
		case agentclient.BackX11:
			l.l, err = net.Listen("tcp", "127.0.0.1:0")
			l.port = 6010
		default:
			l.l, err = net.Listen("tcp", o.At.String())
		}
		if err != nil {
			return nil, err
		}
		if a, err := netip.ParseAddrPort(l.l.Addr().String()); err == nil && l.port == 0 {
			l.port = a.Port()
		}
		t.Cleanup(func() { l.Close() })
		return l, nil
	}
	return g
}

// opens tells of each listener of a localGuest, from now on.
func (g *fakeGuest) opens() <-chan *localListener {
	listen, opened := g.listen, make(chan *localListener, 2)
	g.listen = func(ctx context.Context, o agentclient.ListenOptions) (Listener, error) {
		l, err := listen(ctx, o)
		if err == nil {
			opened <- l.(*localListener)
		}
		return l, err
	}
	return opened
}

// localListener ends its connections when it is closed, as a guest does.
type localListener struct {
	l    net.Listener
	path string
	port uint16

	mu   sync.Mutex
	open map[net.Conn]bool
}

func (l *localListener) Where() (string, uint16) { return l.path, l.port }

func (l *localListener) Accept() (Conn, netip.AddrPort, error) {
	c, err := l.l.Accept()
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = true
	from, _ := netip.ParseAddrPort(c.RemoteAddr().String())
	return c.(Conn), from, nil
}

func (l *localListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		c.Close()
	}
	return l.l.Close()
}

// openSSH runs OpenSSH's client against a server for g, and returns what it printed.
func openSSH(t *testing.T, g *fakeGuest, args ...string) (out string, err error) {
	t.Helper()
	program, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("no ssh here:", err)
	}
	dir := t.TempDir()
	keys, err := OpenKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			server := &Server{Guest: g, Dir: dir, Name: "box"}
			err = server.Serve(t.Context(), conn, func(text string) { t.Log(text) })
			server.holdsNothing(t)
		}
		served <- err
	}()
	client := &Client{Keys: keys, Proxy: []string{"/usr/bin/env", "MSB_TEST_JOIN=" + socket, os.Args[0]}}
	block, err := client.Host("box")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config")
	if err := os.WriteFile(config, []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, append([]string{"-F", config}, args...)...)
	cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK="+keyring(t))
	b, err := cmd.CombinedOutput()
	l.Close()
	<-served
	return string(b), err
}

// keyring is the socket of an ssh agent with one key, whose comment is "of-the-client".
func keyring(t *testing.T) string {
	t.Helper()
	ring := agent.NewKeyring()
	key, err := openKeyOf(t)
	if err == nil {
		err = ring.Add(agent.AddedKey{PrivateKey: key, Comment: "of-the-client"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return serveUnix(t, func(c net.Conn) { _ = agent.ServeAgent(ring, c) })
}

func openKeyOf(t *testing.T) (any, error) {
	t.Helper()
	dir := t.TempDir()
	keys, err := OpenKeys(dir)
	if err != nil {
		return nil, err
	}
	return ssh.ParseRawPrivateKey(mustRead(t, keys.clientFile))
}

func serveUnix(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "l"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); serve(c) }()
		}
	}()
	return l.Addr().String()
}

// TestI15_AgentForwardingNeedsThePolicy has a command of the guest ask the client's agent, where the policy allows it and
// where it doesn't.
func TestI15_AgentForwardingNeedsThePolicy(t *testing.T) {
	t.Parallel()
	const ask = `[ -S "$SSH_AUTH_SOCK" ] && ssh-add -l || echo no agent`
	out, err := openSSH(t, localGuest(t, agentclient.BackAgent), "-A", "box.msb", ask)
	if err != nil || !strings.Contains(out, "of-the-client") {
		t.Errorf("allowed: %q, %v", out, err)
	}
	out, err = openSSH(t, localGuest(t, agentclient.BackReverse, agentclient.BackX11), "-A", "box.msb", "echo [$SSH_AUTH_SOCK]")
	if err != nil || strings.TrimSpace(out) != "[]" {
		t.Errorf("not allowed: %q, %v", out, err)
	}
}

// TestI15_ReverseForwardingNeedsThePolicy has a program of the guest reach a server of the client's.
func TestI15_ReverseForwardingNeedsThePolicy(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("from the client's server\n"))
			c.Close()
		}
	}()
	at := filepath.Join(t.TempDir(), "at") // where the guest listens: any port may be taken on this machine
	use := `bash -c 'exec 3<>/dev/tcp/127.0.0.1/$(cat ` + at + `) && cat <&3'`
	for _, c := range []struct {
		allowed agentclient.Back
		want    string
		code    int
	}{{agentclient.BackReverse, "from the client's server", 0}, {agentclient.BackAgent, "remote port forwarding failed", 255}} {
		g := localGuest(t, c.allowed)
		listen := g.listen
		g.listen = func(ctx context.Context, o agentclient.ListenOptions) (Listener, error) {
			asked := o.At.Port()
			o.At = netip.AddrPortFrom(o.At.Addr(), 0)
			l, err := listen(ctx, o)
			if err == nil {
				_, port := l.Where()
				l.(*localListener).port = asked
				err = os.WriteFile(at, fmt.Append(nil, port), 0o600)
			}
			return l, err
		}
		out, err := openSSH(t, g, "-o", "ExitOnForwardFailure=yes", "-R", "8080:"+l.Addr().String(), "box.msb", use)
		var exit *exec.ExitError
		if !strings.Contains(out, c.want) || c.code == 0 && err != nil || c.code != 0 && (!errors.As(err, &exit) || exit.ExitCode() != c.code) {
			t.Errorf("%s: %q, %v", c.allowed, out, err)
		}
	}
}

// reverse is a request for ssh -R, as on the wire.
type reverse struct {
	Host string
	Port uint32
}

// TestForwardingsAreOpenForLaterCommands: OpenSSH's client asks for ssh -R and for its session without waiting between.
func TestForwardingsAreOpenForLaterCommands(t *testing.T) {
	t.Parallel()
	g := localGuest(t, agentclient.BackReverse)
	listen := g.listen
	var open atomic.Bool
	g.listen = func(ctx context.Context, o agentclient.ListenOptions) (Listener, error) {
		time.Sleep(50 * time.Millisecond) // a slow guest; without it, the wrong order is seldom seen
		defer open.Store(true)
		return listen(ctx, o)
	}
	g.exec = func(context.Context, agentclient.ExecOptions) (agentclient.ExitStatus, error) {
		if !open.Load() {
			t.Error("the command runs before the port is open")
		}
		return agentclient.ExitStatus{}, nil
	}
	s := serve(t, g)
	if _, _, err := s.SendRequest("tcpip-forward", false, ssh.Marshal(struct {
		Host string
		Port uint32
	}{"localhost", 0})); err != nil {
		t.Fatal(err)
	}
	if err := s.session(t).Run("true"); err != nil {
		t.Error(err)
	}
}

// TestI1_ReverseForwardingStaysOnLoopback asks for listeners at other addresses than the guest's loopback.
func TestI1_ReverseForwardingStaysOnLoopback(t *testing.T) {
	t.Parallel()
	g := localGuest(t, agentclient.BackReverse)
	asked := make(chan netip.AddrPort, 100)
	listen := g.listen
	g.listen = func(ctx context.Context, o agentclient.ListenOptions) (Listener, error) {
		asked <- o.At
		o.At = netip.MustParseAddrPort("127.0.0.1:0") // the number is the guest's, and taken here
		l, err := listen(ctx, o)
		if err == nil {
			l.(*localListener).port = 7
		}
		return l, err
	}
	s := serve(t, g)
	for want, r := range map[string]reverse{
		"127.0.0.1:7": {"", 7}, "127.0.0.2:7": {"::ffff:127.0.0.2", 7}, "[::1]:7": {"::1", 7}, "127.3.3.3:7": {"127.3.3.3", 7}, "127.0.0.1:65535": {"localhost", 65535},
	} {
		ok, _, err := s.SendRequest("tcpip-forward", true, ssh.Marshal(r))
		if !ok || err != nil {
			t.Errorf("%+v: %t, %v", r, ok, err)
			continue
		}
		if got := <-asked; got.String() != want {
			t.Errorf("%+v: the guest listens at %s", r, got)
		}
		if ok, _, err := s.SendRequest("tcpip-forward", true, ssh.Marshal(r)); ok || err != nil {
			t.Errorf("%+v a second time: %t, %v", r, ok, err)
		}
	}
	for _, r := range []reverse{{"0.0.0.0", 7}, {"::", 7}, {"*", 7}, {"10.0.0.1", 7}, {"192.168.127.2", 7}, {"fe80::1%eth0", 7}, {"::1%lo", 7}, {"example.com", 7}, {"localhost", 1 << 16}, {"localhost", 1<<16 + 7}} {
		if ok, _, err := s.SendRequest("tcpip-forward", true, ssh.Marshal(r)); ok || err != nil {
			t.Errorf("%+v: %t, %v", r, ok, err)
		}
	}
	if ok, _, err := s.SendRequest("cancel-tcpip-forward", true, ssh.Marshal(reverse{"localhost", 8})); ok || err != nil {
		t.Errorf("one that isn't there was cancelled: %t, %v", ok, err)
	}
	if ok, _, err := s.SendRequest("cancel-tcpip-forward", true, ssh.Marshal(reverse{"", 7})); !ok || err != nil {
		t.Errorf("cancel: %t, %v", ok, err)
	}
	select {
	case at := <-asked:
		t.Errorf("the guest was asked for %s", at)
	default:
	}
}

// TestI11_ReverseForwardingsAreBounded asks for one more than there may be, which one that is cancelled makes room for.
func TestI11_ReverseForwardingsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, localGuest(t, agentclient.BackReverse))
	first := uint32(0)
	for n := range 16 { // docs/ssh.md
		ok, reply, err := s.SendRequest("tcpip-forward", true, ssh.Marshal(reverse{"localhost", 0}))
		var m struct{ Port uint32 }
		if !ok || err != nil || ssh.Unmarshal(reply, &m) != nil || m.Port == 0 {
			t.Fatalf("%d: %t, %q, %v", n, ok, reply, err)
		}
		if first == 0 {
			first = m.Port
		}
	}
	ask := func() bool {
		ok, _, err := s.SendRequest("tcpip-forward", true, ssh.Marshal(reverse{"localhost", 0}))
		return ok && err == nil
	}
	if ask() {
		t.Error("there is one more")
	}
	if ok, _, err := s.SendRequest("cancel-tcpip-forward", true, ssh.Marshal(reverse{"localhost", first})); !ok || err != nil || !ask() {
		t.Errorf("one that was cancelled leaves no room: %t, %v", ok, err)
	}
}

// TestAgentSocketsAreTheSessions: the socket is of the user whose session asked for it, and of the image's for anyUser.
func TestAgentSocketsAreTheSessions(t *testing.T) {
	t.Parallel()
	for as, want := range map[string]string{"root": "root", anyUser: "app"} {
		g := localGuest(t, agentclient.BackAgent)
		listen, asked := g.listen, make(chan agentclient.ListenOptions, 1)
		g.listen = func(ctx context.Context, o agentclient.ListenOptions) (Listener, error) {
			asked <- o
			return listen(ctx, o)
		}
		c := serve(t, g, func(_ *Server, config *ssh.ClientConfig) { config.User = as })
		if ok, err := c.session(t).SendRequest("auth-agent-req@openssh.com", true, nil); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if o := <-asked; o.Back != agentclient.BackAgent || o.User != want {
			t.Errorf("%s: the guest is asked for %+v, want a socket of %s", as, o, want)
		}
	}
}

// TestAgentSocketsOutliveTheirFirstSession: sessions of one client share the socket, and the end of the one that asked first
// takes it from none of the others.
func TestAgentSocketsOutliveTheirFirstSession(t *testing.T) {
	t.Parallel()
	g := localGuest(t, agentclient.BackAgent)
	opened := g.opens()
	s := serve(t, g)
	asked := s.HandleChannelOpen("auth-agent@openssh.com")
	first, second := s.session(t), s.session(t)
	for _, session := range []*ssh.Session{first, second} {
		if ok, err := session.SendRequest("auth-agent-req@openssh.com", true, nil); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	first.Close()
	for deadline := time.Now().Add(20 * time.Second); s.server.channels.Load() != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the first session has not ended")
		}
	}
	conn, err := net.Dial("unix", (<-opened).path)
	if err != nil {
		t.Fatalf("the first session's end took the agent's socket from the second: %v", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	go func() {
		c := <-asked
		if c == nil {
			return // the client has gone
		}
		channel, requests, err := c.Accept()
		if err == nil {
			go ssh.DiscardRequests(requests)
			_, _ = channel.Write([]byte("x"))
		}
	}()
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Errorf("the client's agent can't be asked: %v", err)
	}
	if len(opened) > 0 {
		t.Error("the second session has a socket of its own")
	}
}

// TestI11_ListenersEndWithTheirClient: nothing of what leads back is left when the client goes, and what a program of the
// guest has open ends with it.
func TestI11_ListenersEndWithTheirClient(t *testing.T) {
	t.Parallel()
	g := localGuest(t, agentclient.BackReverse)
	opened := g.opens()
	s := serve(t, g)
	ok, reply, err := s.SendRequest("tcpip-forward", true, ssh.Marshal(reverse{"localhost", 0}))
	var m struct{ Port uint32 }
	if !ok || err != nil || ssh.Unmarshal(reply, &m) != nil {
		t.Fatalf("%t, %v", ok, err)
	}
	channels := s.HandleChannelOpen("forwarded-tcpip")
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", m.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := <-channels
	var told direct
	if err := ssh.Unmarshal(c.ExtraData(), &told); err != nil || told.Host != "localhost" || told.Port != m.Port || told.Origin != "127.0.0.1" || told.OriginPort == 0 {
		t.Errorf("the client is told %+v, %v", told, err)
	}
	channel, requests, err := c.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(requests)
	if _, err := channel.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came when the client had gone", n)
	}
	if _, _, err := (<-opened).Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the guest listens on for a client that has gone: %v", err)
	}
}

// TestI15_X11ForwardingNeedsThePolicy opens a display that is the client's, and gives the guest's user its cookie.
func TestI15_X11ForwardingNeedsThePolicy(t *testing.T) {
	t.Parallel()
	ask := ssh.Marshal(x11{Protocol: "MIT-MAGIC-COOKIE-1", Cookie: "00ff", Screen: 3})
	for _, allowed := range []bool{true, false} {
		g := localGuest(t, agentclient.BackAgent)
		if allowed {
			g = localGuest(t, agentclient.BackX11)
		}
		env := make(chan []string, 1)
		exec := g.exec
		g.exec = func(ctx context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
			if o.Argv[0] == "xauth" {
				return exec(ctx, o)
			}
			env <- o.Env
			return agentclient.ExitStatus{}, nil
		}
		s := serve(t, g)
		channel, requests, err := s.OpenChannel("session", nil)
		if err != nil {
			t.Fatal(err)
		}
		go ssh.DiscardRequests(requests)
		for _, bad := range []x11{{}, {Single: true, Protocol: "a", Cookie: "b"}, {Protocol: "a b", Cookie: "b"}, {Protocol: "a", Cookie: "b\nremove"}} {
			if ok, err := channel.SendRequest("x11-req", true, ssh.Marshal(bad)); ok || err != nil {
				t.Errorf("%+v: %t, %v", bad, ok, err)
			}
		}
		if ok, err := channel.SendRequest("x11-req", true, ask); ok != allowed || err != nil {
			t.Errorf("%t, want %t (%v)", ok, allowed, err)
		}
		if ok, err := channel.SendRequest("x11-req", true, ask); ok || err != nil {
			t.Errorf("a second display: %t, %v", ok, err)
		}
		if ok, err := channel.SendRequest("shell", true, nil); !ok || err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(<-env, "DISPLAY=localhost:10.3"); got != allowed {
			t.Errorf("the command has the display: %t, want %t", got, allowed)
		}
	}
}

// TestEndedListenersAreForgotten: a reload that took [ssh] away ended the client's listeners, and the client got them again
// neither while it was away, when the agent's dead socket was given without a judgement, nor once it was back.
func TestEndedListenersAreForgotten(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var all []Listener
	judged, allowed := 0, true
	g := localGuest(t, agentclient.BackAgent, agentclient.BackReverse)
	listen := g.listen
	g.listen = func(ctx context.Context, o agentclient.ListenOptions) (Listener, error) {
		mu.Lock()
		defer mu.Unlock()
		judged++
		if !allowed {
			return nil, errors.New("the policy has nothing of it in [ssh]")
		}
		l, err := listen(ctx, o)
		all = append(all, l)
		return l, err
	}
	client := serve(t, g)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint32(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	at := ssh.Marshal(struct {
		Host string
		Port uint32
	}{"localhost", port})
	ask := func() (agent, reverse bool) {
		session := client.session(t)
		defer session.Close()
		agent, err := session.SendRequest("auth-agent-req@openssh.com", true, nil)
		if err == nil {
			reverse, _, err = client.SendRequest("tcpip-forward", true, at)
		}
		if err != nil {
			t.Fatal(err)
		}
		return agent, reverse
	}
	if agent, reverse := ask(); !agent || !reverse {
		t.Fatalf("agent %t, reverse %t at the beginning", agent, reverse)
	}
	if agent, reverse := ask(); !agent || reverse { // one agent for all sessions, one listener for a port
		t.Errorf("agent %t, reverse %t while they stand", agent, reverse)
	}
	mu.Lock()
	allowed = false
	for _, l := range all {
		_ = l.Close()
	}
	before := judged
	mu.Unlock()
	deadline := time.Now().Add(20 * time.Second)
	for agent, _ := ask(); agent; agent, _ = ask() {
		if time.Now().After(deadline) {
			t.Fatal("the agent's socket is given although the policy took it away")
		}
	}
	mu.Lock()
	if judged == before {
		t.Error("nobody judged the agent's socket")
	}
	allowed = true
	mu.Unlock()
	agent, reverse := ask()
	for !agent || !reverse {
		if time.Now().After(deadline) {
			t.Fatalf("agent %t, reverse %t although the policy gave them back", agent, reverse)
		}
		a, r := ask()
		agent, reverse = agent || a, reverse || r
	}
}

// slowListener ends when a test lets it, some time after it was closed: as one whose guest is busy.
type slowListener struct {
	closed, ends chan struct{}
	close        func()
}

func newSlowListener() *slowListener {
	l := &slowListener{closed: make(chan struct{}), ends: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

func (*slowListener) Where() (string, uint16) { return "", 7 }
func (l *slowListener) Close() error          { l.close(); return nil }
func (l *slowListener) Accept() (Conn, netip.AddrPort, error) {
	<-l.ends
	return nil, netip.AddrPort{}, net.ErrClosed
}

// TestCancelledForwardingsEnd: ssh's ~C cancels a forwarding and may ask for it again at once, while the guest still ends the
// first.
func TestCancelledForwardingsEnd(t *testing.T) {
	t.Parallel()
	g, opened := waits(), make(chan *slowListener, 2)
	g.listen = func(context.Context, agentclient.ListenOptions) (Listener, error) {
		l := newSlowListener()
		opened <- l
		return l, nil
	}
	s := serve(t, g)
	ask := func(what string) {
		t.Helper()
		if ok, _, err := s.SendRequest(what, true, ssh.Marshal(reverse{"localhost", 7})); !ok || err != nil {
			t.Errorf("%s: %t, %v", what, ok, err)
		}
	}
	ask("tcpip-forward")
	ask("cancel-tcpip-forward")
	first := <-opened
	select {
	case <-first.closed:
	default:
		t.Error("the guest listens on for a forwarding that was cancelled")
	}
	ask("tcpip-forward")
	close(first.ends)
	second := <-opened
	ask("cancel-tcpip-forward")
	close(second.ends)
}

// TestClientsAreToldWhatIsRefused: ssh itself shows at most that a request failed.
func TestClientsAreToldWhatIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, waits())
	notices := make(chan string, 10)
	near, _ := connectNoticing(t, t.Context(), s.server, func(text string) { notices <- text })
	conn, channels, requests, err := ssh.NewClientConn(near, "box", s.config)
	if err != nil {
		t.Fatal(err)
	}
	client := &served{Client: ssh.NewClient(conn, channels, requests)}
	session := client.session(t)
	const why = "the policy has nothing of it in [ssh]"
	for want, ask := range map[string]func() (bool, error){
		"reverse forwarding of localhost:7 is refused: " + why: func() (bool, error) {
			ok, _, err := client.SendRequest("tcpip-forward", true, ssh.Marshal(reverse{"localhost", 7}))
			return ok, err
		},
		"reverse forwarding of [::]:7 is refused: " + errBackElsewhere.Error(): func() (bool, error) {
			ok, _, err := client.SendRequest("tcpip-forward", true, ssh.Marshal(reverse{"::", 7}))
			return ok, err
		},
		"agent forwarding is refused: " + why: func() (bool, error) { return session.SendRequest("auth-agent-req@openssh.com", true, nil) },
		"X11 forwarding is refused: " + why: func() (bool, error) {
			return session.SendRequest("x11-req", true, ssh.Marshal(x11{Protocol: "MIT-MAGIC-COOKIE-1", Cookie: "00"}))
		},
	} {
		ok, err := ask()
		if ok || err != nil {
			t.Errorf("%s: %t, %v", want, ok, err)
			continue
		}
		select {
		case got := <-notices: // before the reply
			if got != want {
				t.Errorf("the user is told %q, want %q", got, want)
			}
		default:
			t.Errorf("the user is not told %q", want)
		}
	}
}

// onceListener accepts one connection, from no address, as of a Unix socket.
type onceListener struct {
	*slowListener
	conns chan net.Conn
}

func (l *onceListener) Accept() (Conn, netip.AddrPort, error) {
	select {
	case c := <-l.conns:
		return pipeConn{c}, netip.AddrPort{}, nil
	case <-l.closed:
		return nil, netip.AddrPort{}, net.ErrClosed
	}
}

// TestI11_ConnectionsBackAreClosedUnlessTheClientTakesThem has a program of the guest connect where the client refuses, and
// where the sandbox's clients have all channels open that they may.
func TestI11_ConnectionsBackAreClosedUnlessTheClientTakesThem(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ takes, full bool }{"refused": {}, "at the bound": {takes: true, full: true}, "taken": {takes: true}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := &onceListener{newSlowListener(), make(chan net.Conn)}
			g := waits()
			g.listen = func(context.Context, agentclient.ListenOptions) (Listener, error) { return l, nil }
			s := serve(t, g)
			if c.takes {
				channels := s.HandleChannelOpen("forwarded-tcpip")
				go func() {
					for n := range channels {
						var told direct
						if err := ssh.Unmarshal(n.ExtraData(), &told); err != nil || told.Origin != "127.0.0.1" {
							t.Errorf("the client is told %+v, %v", told, err)
						}
						if channel, requests, err := n.Accept(); err == nil {
							go ssh.DiscardRequests(requests)
							_, _ = channel.Write([]byte("x"))
						}
					}
				}()
			}
			if ok, _, err := s.SendRequest("tcpip-forward", true, ssh.Marshal(reverse{"localhost", 7})); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if c.full {
				s.server.channels.Add(160) // docs/ssh.md
				defer s.server.channels.Add(-160)
			}
			ours, theirs := net.Pipe()
			l.conns <- ours
			_ = theirs.SetDeadline(time.Now().Add(20 * time.Second))
			n, err := theirs.Read(make([]byte, 1))
			if taken := c.takes && !c.full; taken && n != 1 || !taken && !errors.Is(err, io.EOF) {
				t.Errorf("the guest's program reads %d bytes: %v", n, err)
			}
		})
	}
}

// TestDisplaysThatFailAreClosed has each step behind the listener of a display fail. The twin is a display.
func TestDisplaysThatFailAreClosed(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		port   uint16
		xauth  agentclient.ExitStatus
		err    error
		notice string
		opens  bool
	}{
		"a display":               {port: 6010, opens: true},
		"the first display":       {port: 6000, opens: true},
		"a port that is none":     {port: 5999},
		"no xauth":                {port: 6010, xauth: agentclient.ExitStatus{StartError: agentclient.NotFound}, notice: "needs xauth in the image"},
		"an xauth that fails":     {port: 6010, xauth: agentclient.ExitStatus{Code: 1}, notice: "exit code 1"},
		"an xauth that is killed": {port: 6010, xauth: agentclient.ExitStatus{Signal: 9}, notice: "xauth failed"},
		"a guest that is gone":    {port: 6010, err: errors.New("gone"), notice: "gone"},
	} {
		l := &onceListener{newSlowListener(), make(chan net.Conn)}
		g, asked := waits(), make(chan agentclient.ExecOptions, 1)
		g.listen = func(context.Context, agentclient.ListenOptions) (Listener, error) {
			return portListener{l, c.port}, nil
		}
		g.exec = func(ctx context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
			if _, ends := ctx.Deadline(); !ends { // the Timeout is for the guest to keep
				t.Errorf("%s: the guest is waited for without end", what)
			}
			asked <- o
			return c.xauth, c.err
		}
		s := serve(t, g)
		notices := make(chan string, 1)
		near, _ := connectNoticing(t, t.Context(), s.server, func(text string) { notices <- text })
		conn, channels, requests, err := ssh.NewClientConn(near, "box", s.config)
		if err != nil {
			t.Fatal(err)
		}
		session := (&served{Client: ssh.NewClient(conn, channels, requests)}).session(t)
		ok, err := session.SendRequest("x11-req", true, ssh.Marshal(x11{Protocol: "MIT-MAGIC-COOKIE-1", Cookie: "00ff"}))
		if ok != c.opens || err != nil {
			t.Errorf("%s: %t, %v", what, ok, err)
		}
		select {
		case <-l.closed:
			if c.opens {
				t.Errorf("%s: its listener is closed", what)
			}
		default:
			if !c.opens {
				t.Errorf("%s: the guest listens on", what)
			}
		}
		select {
		case o := <-asked:
			if o.User != "app" || o.Argv[0] != "xauth" || o.Timeout != 10*time.Second {
				t.Errorf("%s: the guest runs %+v", what, o)
			}
			if o.Stdout != nil || o.Stderr != nil { // which would hold what a guest writes without end
				t.Errorf("%s: what the guest's xauth writes is kept", what)
			}
		default:
			if c.port >= 6000 {
				t.Errorf("%s: nobody has the cookie", what)
			}
		}
		select {
		case got := <-notices:
			if c.notice == "" || !strings.Contains(got, c.notice) {
				t.Errorf("%s: the user is told %q", what, got)
			}
		default:
			if c.notice != "" {
				t.Errorf("%s: the user is not told %q", what, c.notice)
			}
		}
	}
}

// portListener is a listener at another port.
type portListener struct {
	*onceListener
	port uint16
}

func (l portListener) Where() (string, uint16) { return "", l.port }
