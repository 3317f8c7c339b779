package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/sandbox/sshd"
)

// newSSHProxyCommand is for ssh to run, and hidden from people.
func newSSHProxyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "ssh-proxy NAME",
		Short:   "Speak SSH for a sandbox on standard input and output (for ssh's ProxyCommand)",
		Example: `  ssh -o ProxyCommand="msb ssh-proxy agent" …   # as in what msb ssh-config prints`,
		Hidden:  true,
		Args:    named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			if term.IsTerminal(int(os.Stdin.Fd())) {
				return &usageError{err: errors.New("ssh-proxy is for ssh to run; use msb ssh " + args[0]), help: "msb ssh --help"}
			}
			// ssh sends SIGHUP when it ends, and a terminal SIGINT to both. Both are ignored: the session ends with
			// standard input, and its commands have time to end.
			signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			return serveSSH(c.Context(), home, args[0])
		},
	}
}

func serveSSH(ctx context.Context, home *sandbox.Home, name string) error {
	sb, err := home.Connect(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = sb.Close() }() // ends this session, whose work is done
	st, err := home.Inspect(name)
	if err != nil {
		return err
	}
	keys, err := sshd.OpenKeys(st.Dir)
	if err != nil {
		return sandbox.Fail(err)
	}
	server := &sshd.Server{Guest: sshGuest{sb}, Keys: keys, Name: name, User: sb.Image().Config.User, Warn: func(text string) {
		_, _ = fmt.Fprintln(os.Stderr, "msb: "+text) // ssh shows it
	}}
	return server.Serve(ctx, &stdioConn{in: os.Stdin, out: os.Stdout})
}

// sshGuest is a sandbox as sshd sees it.
type sshGuest struct{ *sandbox.Sandbox }

var _ sshd.Guest = sshGuest{}

// Connect implements sshd.Guest.
func (g sshGuest) Connect(ctx context.Context, to netip.AddrPort) (sshd.Conn, error) {
	c, err := g.Sandbox.Connect(ctx, to)
	if err != nil {
		return nil, err // never a nil *GuestConn in an interface
	}
	return c, nil
}

// Listen implements sshd.Guest.
func (g sshGuest) Listen(ctx context.Context, o sandbox.ListenOptions) (sshd.Listener, error) {
	l, err := g.Sandbox.Listen(ctx, o)
	if err != nil {
		return nil, err
	}
	return sshListener{l}, nil
}

// sshListener is a listener in the guest as sshd sees it.
type sshListener struct{ l *sandbox.GuestListener }

var _ sshd.Listener = sshListener{}

// Where implements sshd.Listener.
func (l sshListener) Where() (path string, port uint16) { return l.l.Path, l.l.Port }

// Accept implements sshd.Listener.
func (l sshListener) Accept() (sshd.Conn, netip.AddrPort, error) {
	c, from, err := l.l.Accept()
	if err != nil {
		return nil, from, err
	}
	return c, from, nil
}

// Close implements sshd.Listener.
func (l sshListener) Close() error { return l.l.Close() }

// stdioConn makes standard input and output one connection. Close ends the writing; a pending Read waits until ssh closes
// its end or this process ends.
type stdioConn struct{ in, out *os.File }

var _ net.Conn = (*stdioConn)(nil)

func (c *stdioConn) Read(b []byte) (int, error)  { return c.in.Read(b) }
func (c *stdioConn) Write(b []byte) (int, error) { return c.out.Write(b) }

// Close implements net.Conn.
func (c *stdioConn) Close() error { return errors.Join(c.out.Close(), c.in.Close()) }

func (*stdioConn) LocalAddr() net.Addr                { return &net.UnixAddr{Name: "stdio", Net: "unix"} }
func (*stdioConn) RemoteAddr() net.Addr               { return &net.UnixAddr{Name: "ssh", Net: "unix"} }
func (*stdioConn) SetDeadline(time.Time) error        { return os.ErrNoDeadline }
func (*stdioConn) SetReadDeadline(t time.Time) error  { return os.ErrNoDeadline }
func (*stdioConn) SetWriteDeadline(t time.Time) error { return os.ErrNoDeadline }
