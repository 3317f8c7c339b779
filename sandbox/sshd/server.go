package sshd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
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

// Server serves the SSH clients of one sandbox.
type Server struct {
	Guest Guest
	// Dir is the sandbox's directory, which has the keys.
	Dir string
	// Name is the sandbox's, which direct-tcpip may ask for as its host.
	Name string
	// User is who runs the commands of anyUser, as in ExecOptions.
	User string
	// Failed gets what went wrong in msb itself, with the stack; may be nil.
	Failed func(error)

	hangup time.Duration // hangupWait; tests shorten it, as the next one
	late   time.Duration // greetingWait

	clients, channels atomic.Int64 // of all clients, that are open
}

// errKey is the answer to every key but the sandbox's.
var errKey = errors.New("not this sandbox's key; `msb ssh-config` prints a configuration that has it")

func config(keys *Keys) *ssh.ServerConfig {
	want := keys.client.Marshal()
	c := &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-msb",
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if !bytes.Equal(key.Marshal(), want) {
				return nil, errKey
			}
			return nil, nil // no permissions beside those of every client
		},
	}
	c.AddHostKey(keys.host)
	return c
}

// Serve serves the client on conn until it goes or ctx ends, and returns when all that it started has ended or was killed.
// Closing conn must end a Read and a Write that wait. notice, which may be nil, tells the client's user why something was
// refused, where SSH has no place for it. A client that goes is no error.
func (s *Server) Serve(ctx context.Context, conn io.ReadWriteCloser, notice func(string)) (err error) {
	defer func() { _ = conn.Close() }() // nothing is left to say
	defer s.contain(&err)
	if !take(&s.clients, maxClients) {
		return fmt.Errorf("%d ssh clients are connected already; end one", maxClients)
	}
	defer s.clients.Add(-1)
	keys, err := OpenKeys(s.Dir)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the loop below
	defer stop()
	wait := cmp.Or(s.late, greetingWait)
	late := time.AfterFunc(wait, func() { _ = conn.Close() })
	client, channels, requests, err := ssh.NewServerConn(stream{ReadWriteCloser: conn}, config(keys))
	if !late.Stop() && ctx.Err() == nil {
		return fmt.Errorf("the ssh client showed no key within %s", wait)
	}
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil // it has gone, and knows why; or the sandbox ends
	}
	if err != nil {
		return fmt.Errorf("the ssh client: %w", err)
	}
	l := &link{
		server: s, client: client, notice: notice, user: s.userOf(client.User()), life: ctx,
		sessions: make(chan struct{}, maxSessions), forwards: make(chan struct{}, maxForwards), backs: make(chan struct{}, maxBack),
	}
	l.back.link = l
	return l.serve(ctx, channels, requests)
}

// serve answers the client until it goes.
func (l *link) serve(ctx context.Context, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.run(func() {
		l.answer(ctx, channels, requests)
		cancel() // a connection that the guest has not taken by now
	})
	l.work.Wait()
	if l.failed.Load() {
		return errInternal
	}
	return nil
}

// answer takes what the client asks for in its order, until it goes: the command of ssh -R PORT:… HOST COMMAND finds the port
// open.
func (l *link) answer(ctx context.Context, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				requests = nil
				continue
			}
			l.back.answer(ctx, r)
		case c, ok := <-channels:
			if !ok {
				return
			}
			for len(requests) > 0 { // x/crypto/ssh has put there what came before
				l.back.answer(ctx, <-requests)
			}
			l.open(ctx, c)
		}
	}
}

// errInternal is what a client is told of a panic.
var errInternal = errors.New("an error in msb's SSH server, which supervisor.log in the sandbox's directory shows; please report it")

// contain keeps a panic to the connection in which it is. What x/crypto/ssh does in goroutines of its own is not contained:
// it reads what the user's own ssh sends, and nothing of the guest's.
func (s *Server) contain(err *error) {
	if why := recover(); why != nil {
		if s.Failed != nil {
			s.Failed(fmt.Errorf("a panic in the SSH server: %v\n%s", why, debug.Stack()))
		}
		*err = errInternal
	}
}

// run starts a part of the connection. A panic in it ends the connection.
func (l *link) run(part func()) {
	l.work.Go(func() { l.contained(part) })
}

func (l *link) contained(part func()) {
	var err error
	defer func() {
		if err != nil {
			l.failed.Store(true)
			_ = l.client.Close() // its only error is that it is closed already
		}
	}()
	defer l.server.contain(&err)
	part()
}

// take adds one to n, unless it is at most already.
func take(n *atomic.Int64, most int64) bool {
	if n.Add(1) <= most {
		return true
	}
	n.Add(-1)
	return false
}

// stream is a client's stream as x/crypto/ssh takes it, which uses its addresses only to show them.
type stream struct {
	io.ReadWriteCloser
	net.Conn
}

func (s stream) Read(b []byte) (int, error)  { return s.ReadWriteCloser.Read(b) }
func (s stream) Write(b []byte) (int, error) { return s.ReadWriteCloser.Write(b) }
func (s stream) Close() error                { return s.ReadWriteCloser.Close() }
func (stream) LocalAddr() net.Addr           { return &net.UnixAddr{Name: "msb", Net: "unix"} }
func (stream) RemoteAddr() net.Addr          { return &net.UnixAddr{Name: "ssh", Net: "unix"} }

func (l *link) warn(format string, args ...any) {
	if l.notice != nil {
		l.notice(fmt.Sprintf(format, args...))
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
	notice func(string)
	user   string
	life   context.Context // the sandbox's
	back   back
	failed atomic.Bool // by a panic

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
	if !take(&l.server.channels, maxChannels) {
		<-slots
		reject(c, ssh.ResourceShortage, fmt.Sprintf("the sandbox's ssh clients have %d channels open already; close one", maxChannels))
		return
	}
	l.run(func() {
		defer func() { l.server.channels.Add(-1); <-slots }()
		serve(ctx, c)
	})
}

func reject(c ssh.NewChannel, why ssh.RejectionReason, message string) {
	_ = c.Reject(why, message) // its only error is that the client has gone
}
