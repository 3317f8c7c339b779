package sandbox

import (
	"context"
	"net/netip"

	"github.com/msb-project/msb/agentd/agentclient"
)

// GuestConn is a TCP connection to a server in a guest.
type GuestConn = agentclient.Conn

// Connect opens a connection to an address of the guest's own: loopback, or one of its interfaces'. It is made inside the
// guest, so that no policy has a say in it. Cancelling ctx ends the connection.
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

// Listen lets the guest's programs connect to this process, for an SSH server that leads them to its client: to the
// client's ssh agent, or to what the client forwards. It is refused unless the policy's [ssh] allows it. Cancelling ctx ends
// the listener and its connections.
func (s *Sandbox) Listen(ctx context.Context, o ListenOptions) (*GuestListener, error) {
	l, err := s.client.Listen(ctx, o)
	return l, Fail(err)
}
