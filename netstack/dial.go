package netstack

import (
	"context"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// DialGuest connects to a TCP port of the guest from the gateway's address, for
// published ports.
func (s *Stack) DialGuest(ctx context.Context, port uint16) (net.Conn, error) {
	if s.ctx.Err() != nil {
		return nil, ErrClosed
	}
	conn, err := gonet.DialTCPWithBind(ctx, s.net,
		fullAddr(netip.AddrPortFrom(s.cfg.Gateway4, 0)), fullAddr(netip.AddrPortFrom(s.cfg.Guest4, port)), ipv4.ProtocolNumber)
	if err != nil {
		return nil, translateConn(err)
	}
	return conn, nil
}

// fullAddr converts to gVisor's address.
func fullAddr(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}
}
