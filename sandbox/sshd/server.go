package sshd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/msb-project/msb/agentd/agentclient"
)

// anyUser is the SSH user that stands for the sandbox's own; every other is a user of the guest.
const anyUser = "msb"

// Guest is what a server leads to.
type Guest interface {
	Exec(ctx context.Context, opts agentclient.ExecOptions) (agentclient.ExitStatus, error)
	Connect(ctx context.Context, to netip.AddrPort) (Conn, error)
	// Listen is refused where the policy doesn't allow what Back says.
	Listen(ctx context.Context, o agentclient.ListenOptions) (Listener, error)
}

// Conn is a connection to a server in the guest.
type Conn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Server serves one client.
type Server struct {
	Guest Guest
	Keys  *Keys
	// Name is the sandbox's, which direct-tcpip may ask for as its host.
	Name string
	// User is who runs the commands of anyUser, as in ExecOptions.
	User string
	// Warn tells the client's user why something was refused, where SSH has no place for it; may be nil.
	Warn func(string)

	hangup time.Duration // hangupWait; tests shorten it
}

// errKey is the answer to every key but the sandbox's.
var errKey = errors.New("not this sandbox's key; `msb ssh-config` prints a configuration that has it")

func (s *Server) config() *ssh.ServerConfig {
	want := s.Keys.client.Marshal()
	c := &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-msb",
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if !bytes.Equal(key.Marshal(), want) {
				return nil, errKey
			}
			return nil, nil // no permissions beside those of every client
		},
	}
	c.AddHostKey(s.Keys.host)
	return c
}

// Serve serves the client on conn until it goes or ctx ends, and returns when all that it started has ended or was
// killed. A client that goes is no error.
func (s *Server) Serve(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the loop below
	defer stop()
	late := time.AfterFunc(greetingWait, func() { _ = conn.Close() })
	client, channels, requests, err := ssh.NewServerConn(conn, s.config())
	if !late.Stop() && err == nil {
		err = fmt.Errorf("no key within %s", greetingWait)
	}
	if errors.Is(err, io.EOF) {
		return nil // it has gone, and knows why
	}
	if err != nil {
		_ = conn.Close() // the handshake's error tells more
		return fmt.Errorf("the SSH client: %w", err)
	}
	defer func() { _ = client.Close() }() // its only error is that it is closed already
	l := &link{
		server: s, client: client, user: s.userOf(client.User()),
		sessions: make(chan struct{}, maxSessions), forwards: make(chan struct{}, maxForwards), backs: make(chan struct{}, maxBack),
	}
	l.back.link = l
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.work.Go(func() { l.back.serveRequests(ctx, requests) }) // until the connection ends
	for c := range channels {
		l.open(ctx, c)
	}
	cancel() // a connection that the guest has not taken by now
	l.work.Wait()
	return nil
}

func (s *Server) warn(format string, args ...any) {
	if s.Warn != nil {
		s.Warn(fmt.Sprintf(format, args...))
	}
}

func (s *Server) userOf(name string) string {
	if name == anyUser {
		return s.User
	}
	return name
}

// link is one client's connection.
type link struct {
	server *Server
	client *ssh.ServerConn
	user   string
	back   back

	sessions, forwards, backs chan struct{} // as many as are open

	work sync.WaitGroup
}

// open answers a client that asks for a channel. It does not wait for the guest: all channels wait for it.
func (l *link) open(ctx context.Context, c ssh.NewChannel) {
	slots, serve := l.sessions, l.session
	switch c.ChannelType() {
	case "session":
	case "direct-tcpip":
		slots, serve = l.forwards, l.forward
	default:
		reject(c, ssh.UnknownChannelType, "msb has sessions, and connections to the guest's loopback")
		return
	}
	select {
	case slots <- struct{}{}:
	default:
		reject(c, ssh.ResourceShortage, fmt.Sprintf("%d channels of this kind are open already; close one", cap(slots)))
		return
	}
	l.work.Go(func() {
		defer func() { <-slots }()
		serve(ctx, c)
	})
}

func reject(c ssh.NewChannel, why ssh.RejectionReason, message string) {
	_ = c.Reject(why, message) // its only error is that the client has gone
}
