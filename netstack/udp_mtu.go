package netstack

import (
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// A guest at LargeMTU sends datagrams of up to 64 KiB in one packet, although
// the way that they go on from the host takes 1,500 bytes or less. A router
// answers such packets with the MTU of the way ahead, which is how path-MTU
// discovery (RFC 1191, RFC 8201) and don't-fragment probes find it; a gateway
// that fragmented them in silence would let every probe succeed.

// alwaysFits is the payload of a datagram that is never too big: every IPv6
// link takes it.
const alwaysFits = minMTU - header.IPv6MinimumSize - header.UDPMinimumSize

// datagram is what the guest sent to a flow.
type datagram struct {
	data []byte
	// packet is the beginning of the packet, to be quoted, if it may not be
	// fragmented on its way; else nil.
	packet []byte
}

// indivisible tells whether a router may not fragment the packet.
func indivisible(pkt *stack.PacketBuffer) bool {
	network := pkt.NetworkHeader().Slice()
	if pkt.NetworkProtocolNumber == header.IPv4ProtocolNumber {
		return header.IPv4(network).Flags()&header.IPv4FlagDontFragment != 0
	}
	// One that the guest fragmented itself says so in an extension header.
	return header.IPv6(network).NextHeader() == uint8(header.UDPProtocolNumber)
}

// TooBig answers the datagram of the last Read with ICMP: its packet is larger
// than mtu, the MTU of the way ahead. False means that it may be sent in
// fragments instead. For the goroutine that reads.
func (c *UDPConn) TooBig(mtu int) bool {
	if c.last.packet == nil {
		return false
	}
	c.flow.table.stack.icmp.sendWith(c.last.packet, tooBig, max(mtu, minPathMTU))
	return true
}

// minPathMTU is what Linux takes for true at least (net.ipv4.route.min_pmtu).
const minPathMTU = 552
