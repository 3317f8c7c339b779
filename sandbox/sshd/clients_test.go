package sshd

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/msb-project/msb/agentd/agentclient"
)

// works fails the test unless another client of the server can run a command.
func (s *served) works(t *testing.T) {
	t.Helper()
	other, err := s.another(t)
	if err != nil {
		t.Fatalf("another client: %v", err)
	}
	defer other.Close()
	if err := other.session(t).Run("x"); err != nil {
		t.Errorf("another client's command: %v", err)
	}
}

// answers is a guest whose commands end at once, but for those of the user hang.
func answers(hang func(context.Context, agentclient.ExecOptions)) *fakeGuest {
	g := waits()
	g.exec = func(ctx context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
		if o.User == "hang" {
			hang(ctx, o)
		}
		return agentclient.ExitStatus{}, nil
	}
	return g
}

// TestI11_ClientsAreBounded connects as many clients as there may be, which say nothing, and one more.
func TestI11_ClientsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, answers(nil))
	s.Close()
	<-s.ended
	var first net.Conn
	for n := range maxClients {
		near, _ := connect(t, t.Context(), s.server)
		if _, err := io.ReadFull(near, make([]byte, 4)); err != nil { // the server greets
			t.Fatalf("%d: %v", n, err)
		}
		if first == nil {
			first = near
		}
	}
	_, ended := connect(t, t.Context(), s.server)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "16 ssh clients") {
		t.Errorf("one too many: %v", err)
	}
	first.Close()
	for end := time.Now().Add(time.Minute); s.server.clients.Load() == maxClients && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	s.works(t)
}

// TestI11_ChannelsOfAllClientsAreBounded has one client hold all that it may, and others the rest.
func TestI11_ChannelsOfAllClientsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, waits())
	open, refused := 0, 0
	var clients []*served
	const most = 160 // docs/ssh.md
	for range most/(maxSessions+maxForwards) + 1 {
		c, err := s.another(t)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		for range maxSessions {
			if _, _, err := c.OpenChannel("session", nil); err != nil {
				refused++
				continue
			}
			open++
		}
		for range maxForwards {
			if _, _, err := c.OpenChannel("direct-tcpip", ssh.Marshal(direct{Host: "localhost", Port: 80})); err != nil {
				refused++
				continue
			}
			open++
		}
	}
	if open != most || refused == 0 {
		t.Errorf("%d channels are open, %d refused; want %d", open, refused, most)
	}
	// What was refused counts nowhere: the last client may have its share once the first has gone.
	clients[0].Close()
	for end := time.Now().Add(time.Minute); s.server.channels.Load() > most-maxSessions-maxForwards && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	for range refused {
		if _, _, err := clients[len(clients)-1].OpenChannel("direct-tcpip", ssh.Marshal(direct{Host: "localhost", Port: 80})); err != nil {
			t.Fatalf("one that was refused before is still: %v", err)
		}
	}
}

// TestI11_ClientsMustShowTheirKeyInTime connects clients that say nothing, or half a greeting.
func TestI11_ClientsMustShowTheirKeyInTime(t *testing.T) {
	t.Parallel()
	s := serve(t, answers(nil))
	s.server.late = 20 * time.Millisecond
	for _, said := range []string{"", "SSH-2.0-", "SSH-2.0-quiet\r\n"} {
		near, ended := connect(t, t.Context(), s.server)
		_, _ = near.Write([]byte(said))
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "no key within") {
			t.Errorf("%q: %v", said, err)
		}
	}
	s.server.late = 0
	s.works(t)
}

// TestBoundsAreTheDocumentedOnes compares those with docs/ssh.md that no other test reaches.
func TestBoundsAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/ssh.md")
	if err != nil {
		t.Fatal(err)
	}
	for promise, kept := range map[string]bool{
		"A client has a minute to show its key":                         greetingWait == time.Minute,
		"the command gets SIGHUP and, five seconds later, is killed":    hangupWait == 5*time.Second,
		"has at most 16 ports of `-R`, and 32 connections back open at": maxReverse == 16 && maxBack == 32,
	} {
		if !kept || !strings.Contains(string(text), promise) {
			t.Errorf("docs/ssh.md and the server don't agree: %s", promise)
		}
	}
}

// TestGarbageEndsItsConnection sends what is no SSH.
func TestGarbageEndsItsConnection(t *testing.T) {
	t.Parallel()
	s := serve(t, answers(nil))
	for _, said := range []string{"GET / HTTP/1.1\r\n\r\n", strings.Repeat("\x00", 1<<16), "SSH-1.0-old\r\n", "SSH-2.0-x\r\n\xff\xff\xff\xff\xff\xff\xff\xff", "SSH-2.0-x\r\n\x00\x00\x00\x0c\x0a\x14" + strings.Repeat("\xff", 20)} {
		near, ended := connect(t, t.Context(), s.server)
		go func() {
			_, _ = near.Write([]byte(said))
			_ = near.(*net.UnixConn).CloseWrite() // a line that is no greeting may be one before it (RFC 4253, section 4.2)
			_, _ = io.Copy(io.Discard, near)
		}()
		if err := <-ended; err != nil && !strings.HasPrefix(err.Error(), "the ssh client: ssh: ") {
			t.Errorf("%.20q: %v", said, err)
		}
	}
	s.works(t)
}

// FuzzGreeting sends a server what a client may say before its key.
func FuzzGreeting(f *testing.F) {
	server := &Server{Guest: answers(nil), Dir: f.TempDir(), Failed: func(err error) { panic(err) }}
	f.Fuzz(func(t *testing.T, said []byte) {
		near, far := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(t.Context(), far, nil) }()
		go func() { _, _ = io.Copy(io.Discard, near) }()
		_, _ = near.Write(said)
		near.Close()
		<-ended
	})
}

// stoppable is a client's end of a connection, of which it reads nothing once it has stopped.
type stoppable struct {
	net.Conn
	stopped chan struct{}
}

func (s *stoppable) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	select {
	case <-s.stopped:
		<-make(chan struct{}) // until the test's process ends
	default:
	}
	return n, err
}

// TestI11_ClientsThatDoNotReadBlockNobody has a client stop reading in the middle of endless output. Others work, and what
// it held ends with it.
func TestI11_ClientsThatDoNotReadBlockNobody(t *testing.T) {
	t.Parallel()
	flowing, over := make(chan struct{}), make(chan struct{})
	s := serve(t, answers(func(_ context.Context, o agentclient.ExecOptions) {
		text, once := make([]byte, 32<<10), sync.OnceFunc(func() { close(flowing) })
		for out := o.Stdout.(*output); !out.gone; once() {
			_, _ = out.Write(text)
		}
		close(over)
	}))
	near, ended := connect(t, t.Context(), s.server)
	hangs := &stoppable{near, make(chan struct{})}
	config := *s.config
	config.User = "hang"
	conn, channels, requests, err := ssh.NewClientConn(hangs, "box", &config)
	if err != nil {
		t.Fatal(err)
	}
	session, err := ssh.NewClient(conn, channels, requests).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	session.Stdout = io.Discard // its window never closes: the stream does
	if err := session.Start("x"); err != nil {
		t.Fatal(err)
	}
	<-flowing
	close(hangs.stopped)
	s.works(t)
	select {
	case <-over:
		t.Error("the output ended")
	default:
	}
	near.Close()
	<-over
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestPanicsEndTheirConnection has each part of a connection panic. Others work.
func TestPanicsEndTheirConnection(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]func(*testing.T, *served){
		"a command": func(t *testing.T, s *served) {
			if err := s.session(t).Run("panics"); err == nil {
				t.Error("it ended well")
			}
		},
		"a command's input": func(t *testing.T, s *served) {
			if err := s.session(t).Run("reads"); err == nil {
				t.Error("it ended well")
			}
		},
		"a connection": func(t *testing.T, s *served) {
			_, _, _ = s.OpenChannel("direct-tcpip", ssh.Marshal(direct{Host: "localhost", Port: 80}))
		},
		"what a connection carries": func(t *testing.T, s *served) {
			_, _, _ = s.OpenChannel("direct-tcpip", ssh.Marshal(direct{Host: "localhost", Port: 81}))
		},
		"a listener": func(t *testing.T, s *served) {
			_, _, _ = s.SendRequest("tcpip-forward", true, ssh.Marshal(reverse{"localhost", 7}))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := waits()
			g.exec = func(ctx context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
				switch o.Argv[len(o.Argv)-1] {
				case "panics":
					panic("of a test")
				case "reads":
					_, err := (&input{&session{link: o.Stdin.(*input).s.link}}).Read(nil) // of a channel that is nil
					return agentclient.ExitStatus{}, err
				}
				return agentclient.ExitStatus{}, nil
			}
			g.connect = func(_ context.Context, to netip.AddrPort) (Conn, error) {
				if to.Port() == 80 {
					panic("of a test")
				}
				return panicConn{}, nil
			}
			g.listen = func(context.Context, agentclient.ListenOptions) (Listener, error) { return panicListener{}, nil }
			failed := make(chan error, 10)
			s := serve(t, g, func(s *Server, _ *ssh.ClientConfig) { s.Failed = func(err error) { failed <- err } })
			do(t, s)
			if err := <-s.ended; !errors.Is(err, errInternal) {
				t.Errorf("the connection ends with %v", err)
			}
			if err := <-failed; !strings.Contains(err.Error(), "panic") || !strings.Contains(err.Error(), "clients_test.go") && !strings.Contains(err.Error(), "session.go") {
				t.Errorf("reported: %v", err)
			}
			s.works(t)
		})
	}
}

type panicConn struct{}

func (panicConn) Read([]byte) (int, error)    { panic("of a test") }
func (panicConn) Write(b []byte) (int, error) { return len(b), nil }
func (panicConn) CloseWrite() error           { return nil }
func (panicConn) Close() error                { return nil }

type panicListener struct{}

func (panicListener) Where() (string, uint16)               { return "", 7 }
func (panicListener) Accept() (Conn, netip.AddrPort, error) { panic("of a test") }
func (panicListener) Close() error                          { return nil }

// TestCommandsEndWithTheSandbox: the end of the sandbox waits for no hang-up.
func TestCommandsEndWithTheSandbox(t *testing.T) {
	t.Parallel()
	life, end := context.WithCancel(t.Context())
	began := make(chan struct{})
	s := serve(t, answers(func(ctx context.Context, _ agentclient.ExecOptions) {
		close(began)
		<-ctx.Done()
	}), func(s *Server, c *ssh.ClientConfig) { s.hangup, c.User = time.Hour, "hang" })
	near, ended := connect(t, life, s.server)
	conn, channels, requests, err := ssh.NewClientConn(near, "box", s.config)
	if err != nil {
		t.Fatal(err)
	}
	session, err := ssh.NewClient(conn, channels, requests).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start("x"); err != nil {
		t.Fatal(err)
	}
	<-began
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := session.Wait(); err == nil {
		t.Error("the command ended well")
	}
}
