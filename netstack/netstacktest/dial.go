package netstacktest

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/waiter"
)

func full(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nicID, Addr: address(a.Addr()), Port: a.Port()}
}

func network(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}

// DialTCP connects from the guest. The result has CloseRead and CloseWrite.
func (g *Guest) DialTCP(ctx context.Context, dst netip.AddrPort) (*gonet.TCPConn, error) {
	return gonet.DialContextTCP(ctx, g.Stack, full(dst), network(dst.Addr()))
}

// DialTCPFrom is DialTCP from a port.
func (g *Guest) DialTCPFrom(ctx context.Context, port uint16, dst netip.AddrPort) (*gonet.TCPConn, error) {
	return gonet.DialTCPWithBind(ctx, g.Stack, full(netip.AddrPortFrom(g.addrFor(dst.Addr()), port)), full(dst), network(dst.Addr()))
}

// ListenUDP makes a UDP socket on the guest's address of dst's family, from which it can write to any.
func (g *Guest) ListenUDP(port uint16, dst netip.Addr) (*gonet.UDPConn, error) {
	laddr := full(netip.AddrPortFrom(g.addrFor(dst), port))
	return gonet.DialUDP(g.Stack, &laddr, nil, network(dst))
}

func (g *Guest) addrFor(dst netip.Addr) netip.Addr {
	if dst.Is4() {
		return g.cfg.Guest4
	}
	return g.cfg.Guest6
}

// ViaGateway makes the guest send what is for addr to its gateway's MAC, without asking who has it: how an
// attacker speaks to addresses that a plain guest takes for its link's.
func (g *Guest) ViaGateway(addr netip.Addr) {
	g.t.Helper()
	g.must(g.Stack.AddStaticNeighbor(nicID, network(addr), address(addr), tcpip.LinkAddress(g.cfg.GatewayMAC)))
}

// DialContext is DialTCP in the form that http.Transport takes; host must be an
// address.
func (g *Guest) DialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	dst, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	return g.DialTCP(ctx, dst)
}

// DialUDP makes a connected UDP socket in the guest.
func (g *Guest) DialUDP(dst netip.AddrPort) (*gonet.UDPConn, error) {
	raddr := full(dst)
	return gonet.DialUDP(g.Stack, nil, &raddr, network(dst.Addr()))
}

// ListenTCP listens in the guest, on its IPv4 address.
func (g *Guest) ListenTCP(port uint16) (*gonet.TCPListener, error) {
	return gonet.ListenTCP(g.Stack, tcpip.FullAddress{NIC: nicID, Addr: address(g.cfg.Guest4), Port: port}, ipv4.ProtocolNumber)
}

// ListenTCP6 is ListenTCP on its IPv6 address.
func (g *Guest) ListenTCP6(port uint16) (*gonet.TCPListener, error) {
	return gonet.ListenTCP(g.Stack, tcpip.FullAddress{NIC: nicID, Addr: address(g.cfg.Guest6), Port: port}, ipv6.ProtocolNumber)
}

// Ping sends one echo request and waits for its answer, which must carry the
// same payload.
func (g *Guest) Ping(ctx context.Context, dst netip.Addr, payload []byte) error {
	transport, kind := icmp.ProtocolNumber4, uint8(header.ICMPv4Echo)
	if dst.Is6() {
		transport, kind = icmp.ProtocolNumber6, uint8(header.ICMPv6EchoRequest)
	}
	var wq waiter.Queue
	ep, terr := g.Stack.NewEndpoint(transport, network(dst), &wq)
	if terr != nil {
		return fmt.Errorf("ping socket: %s", terr)
	}
	to := full(netip.AddrPortFrom(dst, 0))
	if terr := ep.Connect(to); terr != nil {
		ep.Close()
		return fmt.Errorf("ping %s: %s", dst, terr)
	}
	c := gonet.NewUDPConn(&wq, ep)
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(aLongTimeAgo) })
	defer stop()
	const echoHeader = 8
	msg := append([]byte{kind, 0, 0, 0, 0, 0, 0, 1}, payload...)
	if _, err := c.Write(msg); err != nil {
		return fmt.Errorf("ping %s: %w", dst, err)
	}
	buf := make([]byte, len(msg)+1)
	n, err := c.Read(buf)
	if err != nil {
		return fmt.Errorf("ping %s: %w", dst, err)
	}
	if n < echoHeader || string(buf[echoHeader:n]) != string(payload) {
		return fmt.Errorf("ping %s: answer of %d bytes does not carry the payload", dst, n)
	}
	return nil
}
