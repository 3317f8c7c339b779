package sandbox

import (
	"context"
	"io"
	"net/netip"

	"github.com/msb-project/msb/agentd/agentclient"
)

// GuestConn is a TCP connection to a server in a guest.
type GuestConn = agentclient.Conn

// Connect opens a connection to one of the guest's own addresses: loopback, or an interface's. It is made inside the guest,
// so the policy doesn't apply to it. Cancelling ctx ends the connection.
func (s *Sandbox) Connect(ctx context.Context, to netip.AddrPort) (*GuestConn, error) {
	c, err := s.client.Connect(ctx, to)
	return c, Fail(err)
}

// SSH carries a connection of an SSH client to the sandbox's SSH server: the client's bytes from in, the server's to out. It
// returns when the server has ended, which it does at the end of in; a Read of in that is under way then is left behind.
// notice gets what the client's user is to know, such as what the policy refuses. The sandbox needs a name.
func (s *Sandbox) SSH(ctx context.Context, in io.Reader, out io.Writer, notice func(string)) error {
	err := s.client.SSH(ctx, in, out, notice)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return sessionError(s, err)
}
