//go:build !linux

package egress

import (
	"net"
	"net/netip"
)

// kernelOwns connects a UDP socket, which sends nothing: the kernel gives it an
// address of its own, and for what it keeps to itself that is the same address.
func kernelOwns(_ Proto, a netip.Addr, _ uint16) (bool, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9))) //nolint:forbidigo // nothing is sent
	if err != nil {
		return false, nil //nolint:nilerr // no route: no dial goes there
	}
	defer func() { _ = conn.Close() }()
	local, ok := conn.LocalAddr().(*net.UDPAddr)
	return !ok || local.AddrPort().Addr().Unmap() == a, nil
}
