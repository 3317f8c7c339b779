package netstack

import (
	"encoding/binary"
	"net"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

const (
	// RFC 1812, section 4.3.2.3 and RFC 4443, section 3.1: errors carry as much
	// of the packet as fits these sizes.
	icmpErrorMax4 = 576
	icmpErrorMax6 = minMTU
	// Errors a second and at once; above that, silence (RFC 1812, 4.3.2.8).
	icmpErrorRate  = 1000
	icmpErrorBurst = 200

	gatewayTTL = 64
)

// icmpCode is type and code in both families of one meaning.
type icmpCode struct{ type4, code4, type6, code6 uint8 }

var (
	adminProhibited = icmpCode{3, 13, 1, 1}
	// protocolUnreachable is a parameter problem in IPv6.
	protocolUnreachable = icmpCode{3, 2, 4, 1}
	// tooBig carries the MTU that the packet is too big for.
	tooBig = icmpCode{3, 4, 2, 0}
)

// icmpErrors answers packets with ICMP errors from the gateway.
type icmpErrors struct {
	stack *Stack
	limit *rate.Limiter
}

func newICMPErrors(s *Stack) *icmpErrors {
	return &icmpErrors{stack: s, limit: rate.NewLimiter(icmpErrorRate, icmpErrorBurst)}
}

// send answers packet, which starts with its IP header, as the guard let it
// pass: its source is the guest.
func (e *icmpErrors) send(packet []byte, code icmpCode) { e.sendWith(packet, code, 0) }

// sendWith is send with the MTU of tooBig.
func (e *icmpErrors) sendWith(packet []byte, code icmpCode, mtu int) {
	if len(packet) < header.IPv4MinimumSize || !e.limit.Allow() {
		return
	}
	if packet[0]>>4 == 4 {
		e.stack.writeFrame(header.IPv4ProtocolNumber, e.build4(packet, code, mtu))
	} else if len(packet) >= header.IPv6MinimumSize {
		e.stack.writeFrame(header.IPv6ProtocolNumber, e.build6(packet, code, mtu))
	}
}

func (e *icmpErrors) build4(packet []byte, code icmpCode, mtu int) []byte {
	quote := packet[:min(len(packet), icmpErrorMax4-header.IPv4MinimumSize-header.ICMPv4MinimumSize)]
	frame := make([]byte, header.EthernetMinimumSize+header.IPv4MinimumSize+header.ICMPv4MinimumSize+len(quote))
	ip := header.IPv4(frame[header.EthernetMinimumSize:])
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(ip)),
		TTL:         gatewayTTL,
		Protocol:    uint8(header.ICMPv4ProtocolNumber),
		SrcAddr:     addressOf(e.stack.cfg.Gateway4),
		DstAddr:     tcpip.AddrFrom4Slice(packet[12:16]),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	icmp := header.ICMPv4(ip[header.IPv4MinimumSize:])
	icmp.SetType(header.ICMPv4Type(code.type4))
	icmp.SetCode(header.ICMPv4Code(code.code4))
	if code == tooBig {
		icmp.SetMTU(uint16(mtu))
	}
	copy(icmp[header.ICMPv4MinimumSize:], quote)
	icmp.SetChecksum(^checksum.Checksum(icmp, 0))
	return frame
}

func (e *icmpErrors) build6(packet []byte, code icmpCode, mtu int) []byte {
	quote := packet[:min(len(packet), icmpErrorMax6-header.IPv6MinimumSize-header.ICMPv6ErrorHeaderSize)]
	frame := make([]byte, header.EthernetMinimumSize+header.IPv6MinimumSize+header.ICMPv6ErrorHeaderSize+len(quote))
	icmp := header.ICMPv6(frame[header.EthernetMinimumSize+header.IPv6MinimumSize:])
	icmp.SetType(header.ICMPv6Type(code.type6))
	icmp.SetCode(header.ICMPv6Code(code.code6))
	switch code {
	case protocolUnreachable:
		icmp.SetTypeSpecific(6) // offset of the next header field
	case tooBig:
		icmp.SetTypeSpecific(uint32(mtu))
	}
	copy(icmp[header.ICMPv6ErrorHeaderSize:], quote)
	encodeICMPv6(frame, e.stack.cfg.Gateway6.As16(), [16]byte(packet[8:24]), gatewayTTL)
	return frame
}

// encodeICMPv6 fills the IPv6 header of frame and the checksum of the ICMPv6
// message that follows.
func encodeICMPv6(frame []byte, src, dst [16]byte, hops uint8) {
	ip := header.IPv6(frame[header.EthernetMinimumSize:])
	icmp := header.ICMPv6(ip[header.IPv6MinimumSize:])
	from, to := tcpip.AddrFrom16(src), tcpip.AddrFrom16(dst)
	ip.Encode(&header.IPv6Fields{
		PayloadLength:     uint16(len(icmp)),
		TransportProtocol: header.ICMPv6ProtocolNumber,
		HopLimit:          hops,
		SrcAddr:           from,
		DstAddr:           to,
	})
	icmp.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: icmp, Src: from, Dst: to}))
}

// writeFrame queues a frame for the guest whose bytes after the Ethernet header
// are ready.
func (s *Stack) writeFrame(proto tcpip.NetworkProtocolNumber, frame []byte) {
	dst := s.guard.GuestMAC()
	if dst == nil {
		return
	}
	s.writeFrameTo(dst, proto, frame)
}

func (s *Stack) writeFrameTo(dst net.HardwareAddr, proto tcpip.NetworkProtocolNumber, frame []byte) {
	copy(frame, dst)
	copy(frame[6:], s.cfg.GatewayMAC)
	binary.BigEndian.PutUint16(frame[12:], uint16(proto))
	_ = s.net.WriteRawPacket(nicID, proto, buffer.MakeWithData(frame))
}
