package frameguard

import (
	"encoding/binary"
	"net/netip"
)

const (
	ipv6Header   = 40
	fragHeader   = 8
	extHopByHop  = 0
	extRouting   = 43
	extFragment  = 44
	extESP       = 50
	extAH        = 51
	extNone      = 59
	extDestOpts  = 60
	extMobility  = 135
	extHIP       = 139
	extShim6     = 140
	icmp6Unreach = 1
	icmp6TooBig  = 2
	icmp6Echo    = 128
	icmp6MLD     = 130 // to 132
	icmp6RS      = 133
	icmp6RA      = 134
	icmp6NS      = 135
	icmp6NA      = 136
	icmp6Redir   = 137
	icmp6MLDv2   = 143
)

// mapped4 is the prefix of IPv4 addresses in IPv6 form, which are an API's and no packet's (RFC 4291, section 2.5.5.2).
var mapped4 = [12]byte{10: 0xff, 11: 0xff}

// checkIPv6 judges an IPv6 packet.
func (g *Guard) checkIPv6(dstMAC mac, p []byte) Verdict {
	if len(p) < ipv6Header || p[0]>>4 != 6 {
		return DropHeader
	}
	length := int(binary.BigEndian.Uint16(p[4:]))
	if length == 0 || length > len(p)-ipv6Header {
		return DropHeader // 0 is a jumbogram, or nothing at all
	}
	payload := p[ipv6Header : ipv6Header+length]
	next, hops := p[6], p[7]
	src, dst := [16]byte(p[8:24]), [16]byte(p[24:40])
	if next == protoICMPv6 && len(payload) >= 8 && payload[0] >= icmp6RS && payload[0] <= icmp6Redir {
		return g.checkNDP(src, dst, hops, payload)
	}
	if next == extHopByHop && dst[0] == 0xff && src == [16]byte{} {
		return DropMulticast // MLD, before there is an address
	}
	if !g.source6(src) {
		return DropSourceIP
	}
	if v := checkExtension(next, dst, payload); v != Pass {
		return v
	}
	switch {
	case dst[0] == 0xff:
		return DropMulticast
	case dst == src || dst == [16]byte{} || [12]byte(dst[:12]) == mapped4:
		return DropDestIP
	case dstMAC != g.gatewayMAC:
		return DropDestMAC
	}
	if next != protoICMPv6 {
		return Pass
	}
	switch {
	case len(payload) < 8:
		return DropHeader
	case payload[0] != icmp6Echo && payload[0] != icmp6Unreach && payload[0] != icmp6TooBig:
		return DropICMPType
	}
	return Pass
}

// checkExtension lets one fragment header through and no other extension: no
// client needs them, and chains of them hide what follows (RFC 9098).
func checkExtension(next byte, dst [16]byte, payload []byte) Verdict {
	switch next {
	case protoTCP, protoUDP, protoICMPv6:
		return Pass
	case extRouting:
		return DropRoutingHeader
	case extFragment:
		if len(payload) < fragHeader {
			return DropHeader
		}
		if payload[0] != protoTCP && payload[0] != protoUDP {
			return DropFragment // RFC 6980 for NDP; the rest hides a chain
		}
		at := binary.BigEndian.Uint16(payload[2:])
		return checkFragment(int(at&^7), at&1 != 0, len(payload)-fragHeader, maxPacket)
	case extHopByHop:
		if dst[0] == 0xff {
			return DropMulticast // MLD reports, which every Linux sends
		}
		return DropExtension
	case extDestOpts, extESP, extAH, extMobility, extHIP, extShim6, extNone:
		return DropExtension
	}
	return DropProtocol
}

// source6 says whether a is one of the guest's own addresses: the leased one,
// the link-local one of its MAC and, with router advertisements, the one that
// SLAAC makes of prefix and MAC (RFC 4291, appendix A).
func (g *Guard) source6(a [16]byte) bool {
	if a == g.guest6 {
		return true
	}
	if [8]byte(a[8:]) != eui64(mac(g.guest.Load())) {
		return false
	}
	return [8]byte(a[:8]) == [8]byte{0xfe, 0x80} || g.slaac && g.prefix6.Contains(netip.AddrFrom16(a))
}

// eui64 is the modified interface identifier of a MAC.
func eui64(m mac) [8]byte {
	return [8]byte{byte(m>>40) ^ 2, byte(m >> 32), byte(m >> 24), 0xff, 0xfe, byte(m >> 16), byte(m >> 8), byte(m)}
}
