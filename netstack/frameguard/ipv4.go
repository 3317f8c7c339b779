package frameguard

import (
	"encoding/binary"
)

const (
	ipv4Header = 20

	dhcpServerPort = 67
	dhcpClientPort = 68

	icmpUnreachable = 3
	icmpEcho        = 8
)

// checkIPv4 judges an IPv4 packet. Ports of fragments are not looked at here:
// gVisor reassembles before any flow is made of them.
func (g *Guard) checkIPv4(dstMAC mac, p []byte) Verdict {
	if len(p) < ipv4Header || p[0]>>4 != 4 {
		return DropHeader
	}
	total := int(binary.BigEndian.Uint16(p[2:]))
	if total < ipv4Header || total > len(p) || p[0]&15 < 5 {
		return DropHeader
	}
	src, dst := [4]byte(p[12:16]), [4]byte(p[16:20])
	if dst[0]>>4 == 14 && (src == [4]byte{} || src == g.guest4) && (p[9] == protoIGMP || src == [4]byte{}) {
		return DropMulticast // IGMP has an option, and no source before there is a lease
	}
	if p[0]&15 != 5 {
		return DropOptions // source routes among them
	}
	p = p[:total]
	payload := p[ipv4Header:]
	flags := binary.BigEndian.Uint16(p[6:])
	fragment := flags&0x3fff != 0 // more fragments, or an offset
	if p[9] == protoUDP && !fragment && len(payload) >= 8 {
		if v := g.checkDHCP(src, dst, payload); v != Pass {
			return v
		}
	}
	switch {
	case src != g.guest4:
		return DropSourceIP
	case dst[0]>>4 == 14 || dst == [4]byte{255, 255, 255, 255} || dst == g.bcast4:
		return DropMulticast // 224/4 and every broadcast; 240/4 is reserved, and refused as any special range
	case dst == g.guest4 || dst == [4]byte{}:
		return DropDestIP
	case dstMAC != g.gatewayMAC:
		return DropDestMAC // unicast IP to a group MAC
	}
	if v := checkProtocol4(p[9], fragment, payload); v != Pass || !fragment {
		return v
	}
	return checkFragment(int(flags&0x1fff)*8, flags&0x2000 != 0, len(payload), maxPacket-ipv4Header)
}

// maxPacket is the most that an IP packet holds, for IPv4 with its header.
const maxPacket = 1<<16 - 1

// checkFragment judges the borders of a fragment that passes otherwise: nothing is put together of one that is empty,
// that ends between two units of eight bytes, or beyond the longest packet.
func checkFragment(offset int, more bool, n, limit int) Verdict {
	if n == 0 || more && n%8 != 0 || offset+n > limit {
		return DropFragment
	}
	return Pass
}

// checkProtocol4 lets TCP, UDP and the few kinds of ICMP through that a guest
// needs. Fragmented ICMP serves attacks only.
func checkProtocol4(proto byte, fragment bool, payload []byte) Verdict {
	switch proto {
	case protoTCP, protoUDP:
		return Pass
	case protoICMP:
		switch {
		case fragment:
			return DropFragment
		case len(payload) < 8:
			return DropHeader
		case payload[0] != icmpEcho && payload[0] != icmpUnreachable:
			return DropICMPType // redirects, timestamps, replies nobody asked for
		}
		return Pass
	}
	return DropProtocol
}

// checkDHCP takes DHCP traffic out; pass means that it is none.
func (g *Guard) checkDHCP(src, dst [4]byte, udp []byte) Verdict {
	from, to := binary.BigEndian.Uint16(udp), binary.BigEndian.Uint16(udp[2:])
	switch {
	case from == dhcpServerPort || to == dhcpClientPort:
		return DropDHCPServer
	case to != dhcpServerPort:
		return Pass
	case from != dhcpClientPort || !g.dhcp,
		src != [4]byte{} && src != g.guest4,
		dst != [4]byte{255, 255, 255, 255} && dst != g.gateway4:
		return DropDHCP
	}
	return TakeDHCP
}
