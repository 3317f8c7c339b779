package capture

import (
	"encoding/binary"
	"net/netip"
)

// IANA protocol numbers.
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// TCP flags (RFC 9293, section 3.1).
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// Transport is what a frame carries.
type Transport uint8

// The transports that become flows. Anything else is TransportNone.
const (
	TransportNone Transport = iota
	TransportTCP
	TransportUDP
	// TransportPing is an ICMP echo request or reply; its ends have port 0.
	TransportPing
)

// String returns "tcp", "udp" or "icmp", as the audit log writes it.
func (t Transport) String() string {
	switch t {
	case TransportNone:
		return "none"
	case TransportTCP:
		return "tcp"
	case TransportUDP:
		return "udp"
	case TransportPing:
		return "icmp"
	}
	return "invalid"
}

// Headers are what Decode reads of a frame.
type Headers struct {
	Transport Transport
	Src, Dst  netip.AddrPort
	// Flags, Seq, Ack and Window are of TCP. Scale is that of a SYN (RFC 7323), 0 for none.
	Flags    uint8
	Seq, Ack uint32
	Window   uint16
	Scale    uint8
	// Payload is what follows the transport's header; of a ping, what follows its identifier and
	// sequence number. It is part of the frame, and cut where the capture is.
	Payload []byte
	// Refusal says that this is an ICMP error about a packet of the flow: Src and Dst are those of the
	// packet it quotes, so Src is the end that gets the error.
	Refusal bool
	// Fragment says that the datagram is in pieces and only this one was read.
	Fragment bool
	// Request says of a ping that it is the request.
	Request bool
}

const (
	etherHead = 14
	typeIPv4  = 0x0800
	typeIPv6  = 0x86dd
)

// Decode reads an Ethernet frame's headers. It reports false for what carries no flow: ARP, neighbour
// discovery, other protocols, headers that are cut or lie about their lengths. IPv6 extension headers
// are not followed: the gateway's frame guard drops them.
func Decode(frame []byte) (Headers, bool) {
	if len(frame) < etherHead {
		return Headers{}, false
	}
	switch binary.BigEndian.Uint16(frame[12:]) {
	case typeIPv4:
		return decode4(frame[etherHead:], false)
	case typeIPv6:
		return decode6(frame[etherHead:], false)
	}
	return Headers{}, false
}

// ContinuesTCP reports whether a frame is plainly a later segment of a TCP connection over IPv4. It is for the
// path that bulk data takes, and false where it would take more than a look.
func ContinuesTCP(frame []byte) bool {
	const flagsAt = etherHead + 20 + 13 // of a header without options
	return len(frame) > flagsAt && frame[12] == typeIPv4>>8 && frame[13] == typeIPv4&0xff &&
		frame[etherHead] == 0x45 && frame[etherHead+9] == protoTCP && frame[flagsAt]&(SYN|ACK) == ACK
}

func decode4(b []byte, quoted bool) (Headers, bool) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return Headers{}, false
	}
	head, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if head < 20 || len(b) < head || total < head && !quoted {
		return Headers{}, false
	}
	if total < len(b) && !quoted {
		b = b[:total] // the rest is Ethernet padding
	}
	src, dst := netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	fragment := binary.BigEndian.Uint16(b[6:])
	if fragment&0x1fff != 0 { // not the first piece: its bytes are no header
		return Headers{Src: netip.AddrPortFrom(src, 0), Dst: netip.AddrPortFrom(dst, 0), Fragment: true}, false
	}
	h, ok := transport(b[9], b[head:], src, dst, quoted)
	h.Fragment = fragment&0x2000 != 0
	return h, ok
}

func decode6(b []byte, quoted bool) (Headers, bool) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return Headers{}, false
	}
	if n := 40 + int(binary.BigEndian.Uint16(b[4:])); n < len(b) && !quoted {
		b = b[:n]
	}
	src, dst := netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	return transport(b[6], b[40:], src, dst, quoted)
}

func transport(proto byte, b []byte, src, dst netip.Addr, quoted bool) (Headers, bool) {
	h := Headers{Src: netip.AddrPortFrom(src, 0), Dst: netip.AddrPortFrom(dst, 0)}
	if len(b) < 8 {
		return h, false
	}
	switch {
	case proto == protoTCP:
		return h.tcp(b, quoted)
	case proto == protoUDP:
		h.Transport = TransportUDP
		h.ports(b)
		if n := int(binary.BigEndian.Uint16(b[4:])); n >= 8 && n < len(b) {
			b = b[:n]
		}
		h.Payload = b[8:]
		return h, true
	case proto == protoICMP && src.Is4(), proto == protoICMPv6 && src.Is6():
		return h.icmp(b, quoted)
	}
	return h, false
}

func (h *Headers) ports(b []byte) {
	h.Src = netip.AddrPortFrom(h.Src.Addr(), binary.BigEndian.Uint16(b))
	h.Dst = netip.AddrPortFrom(h.Dst.Addr(), binary.BigEndian.Uint16(b[2:]))
}

func (h Headers) tcp(b []byte, quoted bool) (Headers, bool) {
	h.Transport = TransportTCP
	h.ports(b)
	h.Seq = binary.BigEndian.Uint32(b[4:])
	if quoted { // an ICMP error quotes 8 bytes at least
		return h, true
	}
	if len(b) < 20 {
		return h, false
	}
	h.Flags = b[13]
	head := int(b[12]>>4) * 4
	if head < 20 || head > len(b) {
		return h, false
	}
	h.Ack, h.Window = binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint16(b[14:])
	if h.Flags&SYN != 0 {
		h.Scale = windowScale(b[20:head])
	}
	h.Payload = b[head:]
	return h, true
}

// windowScale finds the option of that name among those of a SYN.
func windowScale(options []byte) uint8 {
	const end, nothing, scale = 0, 1, 3
	for len(options) > 0 {
		switch kind := options[0]; {
		case kind == end, kind != nothing && (len(options) < 2 || options[1] < 2 || int(options[1]) > len(options)):
			return 0
		case kind == nothing:
			options = options[1:]
		case kind == scale && options[1] == 3:
			return min(options[2], 14) // RFC 7323, section 2.3
		default:
			options = options[options[1]:]
		}
	}
	return 0
}

// ICMP types (RFC 792, RFC 4443).
const (
	echoReply4, unreachable4, echo4 = 0, 3, 8
	unreachable6, echo6, echoReply6 = 1, 128, 129
)

func (h Headers) icmp(b []byte, quoted bool) (Headers, bool) {
	six := h.Src.Addr().Is6()
	switch kind := b[0]; {
	case !six && kind == unreachable4 && !quoted:
		inner, ok := decode4(b[8:], true)
		inner.Refusal = true
		return inner, ok
	case six && kind == unreachable6 && !quoted:
		inner, ok := decode6(b[8:], true)
		inner.Refusal = true
		return inner, ok
	case !six && (kind == echo4 || kind == echoReply4), six && (kind == echo6 || kind == echoReply6):
		h.Transport = TransportPing
		h.Request = kind == echo4 || kind == echo6
		h.Payload = b[8:]
		return h, true
	}
	return h, false
}
