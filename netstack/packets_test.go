package netstack_test

import (
	"encoding/binary"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/msb-project/msb/netstack/netstacktest"
)

const (
	flagSYN = header.TCPFlagSyn
	flagRST = header.TCPFlagRst
)

// eth puts an Ethernet header from the guest before an IP packet.
func eth(g *netstacktest.Guest, packet []byte) []byte {
	return ethBetween(g.MAC(), g.GatewayMAC(), packet)
}

func ethBetween(src, dst net.HardwareAddr, packet []byte) []byte {
	kind := uint16(0x0800)
	if packet[0]>>4 == 6 {
		kind = 0x86dd
	}
	f := append(append([]byte(nil), dst...), src...)
	return append(binary.BigEndian.AppendUint16(f, kind), packet...)
}

// ipv4 is an IPv4 packet with a right checksum.
func ipv4(src, dst netip.Addr, proto uint8, payload []byte) []byte {
	p := make([]byte, 20, 20+len(payload))
	h := header.IPv4(p)
	h.Encode(&header.IPv4Fields{
		TotalLength: uint16(20 + len(payload)), TTL: 64, Protocol: proto,
		SrcAddr: tcpip.AddrFromSlice(src.AsSlice()), DstAddr: tcpip.AddrFromSlice(dst.AsSlice()),
	})
	h.SetChecksum(^h.CalculateChecksum())
	return append(p, payload...)
}

// ipv6 is an IPv6 packet.
func ipv6(src, dst netip.Addr, next, hops uint8, payload []byte) []byte {
	p := make([]byte, 40, 40+len(payload))
	header.IPv6(p).Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(payload)), TransportProtocol: tcpip.TransportProtocolNumber(next), HopLimit: hops,
		SrcAddr: tcpip.AddrFromSlice(src.AsSlice()), DstAddr: tcpip.AddrFromSlice(dst.AsSlice()),
	})
	return append(p, payload...)
}

// ip is a packet of the family of its addresses.
func ip(src, dst netip.Addr, proto uint8, payload []byte) []byte {
	if dst.Is6() {
		return ipv6(src, dst, proto, 64, payload)
	}
	return ipv4(src, dst, proto, payload)
}

// udp is a datagram with a right checksum.
func udp(src, dst netip.AddrPort, data []byte) []byte {
	p := make([]byte, 8, 8+len(data))
	h := header.UDP(p)
	n := uint16(8 + len(data))
	h.Encode(&header.UDPFields{SrcPort: src.Port(), DstPort: dst.Port(), Length: n})
	sum := header.PseudoHeaderChecksum(17, tcpip.AddrFromSlice(src.Addr().AsSlice()), tcpip.AddrFromSlice(dst.Addr().AsSlice()), n)
	h.SetChecksum(^checksum.Checksum(append(p, data...), sum))
	return append(p, data...)
}

// icmp6 is an ICMPv6 message with a right checksum.
func icmp6(src, dst netip.Addr, msg []byte) []byte {
	m := header.ICMPv6(append([]byte(nil), msg...))
	m.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{
		Header: m, Src: tcpip.AddrFromSlice(src.AsSlice()), Dst: tcpip.AddrFromSlice(dst.AsSlice()),
	}))
	return m
}

// synPacket is a bare TCP segment.
type synPacket struct {
	src, dst     netip.Addr
	sport, dport uint16
	seq          uint32
}

func (p synPacket) frame(g *netstacktest.Guest, flags header.TCPFlags) []byte {
	return p.frameBetween(g.MAC(), g.GatewayMAC(), flags)
}

func (p synPacket) frameBetween(src, dst net.HardwareAddr, flags header.TCPFlags) []byte {
	b := make([]byte, 20)
	h := header.TCP(b)
	h.Encode(&header.TCPFields{SrcPort: p.sport, DstPort: p.dport, SeqNum: p.seq, DataOffset: 20, Flags: flags, WindowSize: 1000})
	sum := header.PseudoHeaderChecksum(6, tcpip.AddrFromSlice(p.src.AsSlice()), tcpip.AddrFromSlice(p.dst.AsSlice()), 20)
	h.SetChecksum(^h.CalculateChecksum(sum))
	return ethBetween(src, dst, ip(p.src, p.dst, 6, b))
}
