package agentclient

import (
	"context"
	"net/netip"

	"github.com/msb-project/msb/agentd/agentpb"
)

// ForwardLoopback makes the guest pass connections on to one of its servers that listens at a loopback address only. It
// returns the port, at the guest's address listen, that leads there for connections or datagrams from the one address from.
// ErrRefused if no server listens.
func (c *Client) ForwardLoopback(ctx context.Context, udp bool, port uint16, listen, from netip.Addr) (uint16, error) {
	r, err := c.loopback.Forward(ctx, &agentpb.ForwardRequest{Port: uint32(port), Listen: listen.AsSlice(), From: from.AsSlice(), Udp: udp})
	if err != nil {
		return 0, c.callError(ctx, err)
	}
	if r.GetPort() == 0 || r.GetPort() > 1<<16-1 {
		return 0, c.fail(ErrProtocol)
	}
	return uint16(r.GetPort()), nil
}
