package sandbox

import (
	"context"
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

// ListenOptions, GuestListener and Back are those of Listen.
type (
	ListenOptions = agentclient.ListenOptions
	GuestListener = agentclient.Listener
	Back          = agentclient.Back
)

// Listen lets the guest's programs connect to this process, for an SSH server that forwards them to its client: to the
// client's ssh agent, or to what the client offers. It is refused unless the policy's [ssh] allows it. Cancelling ctx ends
// the listener and its connections.
func (s *Sandbox) Listen(ctx context.Context, o ListenOptions) (*GuestListener, error) {
	l, err := s.client.Listen(ctx, o)
	return l, Fail(err)
}
