package supervisor

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/sshd"
)

// sshGuest is the guest as the SSH server sees it. It is held to what holds for a client of the control
// socket: a pause, the audit log's lines, and the policy's [ssh].
type sshGuest struct{ s *supervisor }

var _ sshd.Guest = sshGuest{}

// serve serves a client, until it or the sandbox ends.
func (g sshGuest) serve(conn io.ReadWriteCloser, notice func(string)) error {
	if g.s.plan.Name == "" { // its directory is for a run's own files
		return errors.New("ssh needs a sandbox with a name")
	}
	err := g.s.sshd.Serve(g.s.ctx, conn, notice)
	if g.s.ctx.Err() != nil {
		return agentclient.ErrClosed
	}
	return err
}

// Exec implements sshd.Guest.
func (g sshGuest) Exec(ctx context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
	if err := g.s.pause.refuse(); err != nil {
		return agentclient.ExitStatus{}, err
	}
	o.Tell = g.s.execEvent
	return g.s.agent.Exec(ctx, o)
}

// Connect implements sshd.Guest.
func (g sshGuest) Connect(ctx context.Context, to netip.AddrPort) (sshd.Conn, error) {
	if err := g.s.pause.refuse(); err != nil {
		return nil, err
	}
	c, err := g.s.agent.Connect(ctx, to)
	if err != nil {
		return nil, err // never a nil *agentclient.Conn in an interface
	}
	return c, nil
}

// Listen implements sshd.Guest.
func (g sshGuest) Listen(ctx context.Context, o agentclient.ListenOptions) (sshd.Listener, error) {
	if err := g.s.pause.refuse(); err != nil {
		return nil, err
	}
	ctx, done, err := g.s.ssh.admit(ctx, o.Back, o.At.Port())
	if err != nil {
		return nil, err
	}
	l, err := g.s.agent.Listen(ctx, o)
	if err != nil {
		done()
		return nil, err
	}
	return &sshListener{l, sync.OnceFunc(done)}, nil
}

// sshListener is a listener in the guest as the SSH server sees it.
type sshListener struct {
	*agentclient.Listener
	done func()
}

// Where implements sshd.Listener.
func (l *sshListener) Where() (path string, port uint16) { return l.Path, l.Port }

// Accept implements sshd.Listener.
func (l *sshListener) Accept() (sshd.Conn, netip.AddrPort, error) {
	c, from, err := l.Listener.Accept()
	if err != nil {
		return nil, from, err
	}
	return c, from, nil
}

// Close implements sshd.Listener.
func (l *sshListener) Close() error {
	l.done() // ends the listener's context
	return nil
}
