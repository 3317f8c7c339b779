package frameguard

import (
	"encoding/binary"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// sumGood is the sum over data and its checksum, if that is right (RFC 1071).
const sumGood = 0xffff

// sums says which checksums are taken beside right ones; its zero takes no others.
type sums uint8

const (
	// takePartial takes those of TCP and UDP over the pseudo header alone, which a guest writes that leaves the
	// rest to its card.
	takePartial sums = iota + 1
	// takeNone takes, beside those, a zero: what a capture holds that was made before a card filled the sum in.
	takeNone
)

// checkSums judges the checksums of a frame that check lets through: IPv4's header, TCP, UDP, ICMP and ICMPv6,
// and the lengths in TCP's and UDP's headers. What a fragment is part of is checked once it is put together.
func checkSums(frame []byte, take sums) Verdict {
	p := frame[ethHeader:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherTypeIPv4:
		if checksum.Checksum(p[:ipv4Header], 0) != sumGood && (take < takeNone || p[10] != 0 || p[11] != 0) {
			return DropChecksum
		}
		if !IsFragment(frame) {
			return checkTransport(p[9], p[12:20], p[ipv4Header:binary.BigEndian.Uint16(p[2:])], take)
		}
	case etherTypeIPv6:
		if !IsFragment(frame) {
			return checkTransport(p[6], p[8:40], p[ipv6Header:ipv6Header+int(binary.BigEndian.Uint16(p[4:]))], take)
		}
	}
	return Pass
}

// IsFragment reports whether a frame that check lets through holds a part of a packet.
func IsFragment(frame []byte) bool {
	p := frame[ethHeader:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherTypeIPv4:
		return binary.BigEndian.Uint16(p[6:])&0x3fff != 0 // more of them, or an offset
	case etherTypeIPv6:
		return p[6] == extFragment
	}
	return false
}

// checkTransport judges a transport header with its data. addresses are source and destination, as they are in
// the IP header.
func checkTransport(proto byte, addresses, p []byte, take sums) Verdict {
	at := 0
	switch proto {
	case protoTCP:
		if len(p) < header.TCPMinimumSize {
			return DropHeader
		}
		if offset := int(p[12]>>4) * 4; offset < header.TCPMinimumSize || offset > len(p) {
			return DropHeader
		}
		at = header.TCPChecksumOffset
	case protoUDP:
		if len(p) < header.UDPMinimumSize {
			return DropHeader
		}
		length := int(binary.BigEndian.Uint16(p[4:]))
		if length < header.UDPMinimumSize || length > len(p) {
			return DropHeader
		}
		at, p = 6, p[:length]
		if len(addresses) == 8 && p[6] == 0 && p[7] == 0 {
			return Pass // RFC 768: the sender made none. IPv6 wants one
		}
	case protoICMP, protoICMPv6:
		at = 2
	}
	if take >= takeNone && p[at] == 0 && p[at+1] == 0 {
		return Pass
	}
	pseudo := checksum.Checksum(addresses, checksum.Combine(uint16(proto), uint16(len(p))))
	if proto == protoICMP {
		pseudo = 0
	}
	if checksum.Checksum(p, pseudo) == sumGood {
		return Pass
	}
	// Some leave the length out of it where the card cuts the segment.
	left := binary.BigEndian.Uint16(p[at:])
	switch partial := left == pseudo || proto == protoTCP && left == checksum.Checksum(addresses, uint16(proto)); {
	case !partial || proto != protoTCP && proto != protoUDP:
		return DropChecksum
	case take < takePartial:
		return DropPartial
	}
	return Pass
}
