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
