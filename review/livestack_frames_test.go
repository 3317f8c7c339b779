package review_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/netstack"
)

// minHops is the hop limit below which a packet is a probe, as traceroute makes them: sockets don't.
const minHops = 32

// plain tells the frames of a capture that an ordinary stack makes from those that only a program with a
// raw socket does.
type plain struct {
	mac     net.HardwareAddr
	streams map[connection]*stream
	replies map[netip.Addr]int // echo replies to the guest
}

// stream is how far a TCP connection of a guest came.
type stream struct {
	next   uint32
	broken bool // it has a segment that no stack makes
}

// take advances by a segment and returns its bytes that are new. It breaks at what isn't the next one and
// isn't a repetition.
func (s *stream) take(h *capture.Headers) (fresh []byte) {
	const urgent = 0x20
	opens := h.Flags&capture.SYN != 0
	switch {
	case opens && (h.Flags != capture.SYN || len(h.Payload) > 0 || s.next != 0 && s.next != h.Seq+1),
		!opens && s.next == 0, h.Flags&urgent != 0, !opens && h.Flags&(capture.ACK|capture.RST) == 0:
		s.broken = true
	case opens:
		s.next = h.Seq + 1
	case h.Flags&capture.RST != 0, h.Seq-s.next > 1<<31: // sent again, or a probe of the window
	case h.Seq == s.next:
		fresh = h.Payload
		s.next += uint32(len(fresh))
		if h.Flags&capture.FIN != 0 {
			s.next++
		}
	default:
		s.broken = true
	}
	return fresh
}

// newPlain reads a capture. One frame that no stack makes spoils all of its connection.
func newPlain(t *testing.T, file []byte, mac net.HardwareAddr) *plain {
	t.Helper()
	p := &plain{mac: mac, streams: map[connection]*stream{}, replies: map[netip.Addr]int{}}
	eachFrame(t, file, func(dir capture.Direction, frame []byte, h *capture.Headers, ok bool) {
		switch {
		case !ok:
		case dir == capture.ToGuest:
			if h.Transport == capture.TransportPing && !h.Request {
				p.replies[h.Src.Addr()]++
			}
		case h.Transport == capture.TransportTCP:
			c := connection{h.Src.Port(), h.Dst}
			if p.streams[c] == nil {
				p.streams[c] = new(stream)
			}
			p.streams[c].take(h)
			if !p.sound(frame, h) {
				p.streams[c].broken = true
			}
		}
	})
	return p
}

// says reports whether a stack makes a frame by itself when a program asks it to.
func (p *plain) says(frame []byte, h *capture.Headers) bool {
	switch {
	case h.Refusal:
		return false
	case h.Transport == capture.TransportTCP:
		return !p.streams[connection{h.Src.Port(), h.Dst}].broken
	case h.Transport == capture.TransportPing && !h.Request:
		return false
	}
	return p.sound(frame, h)
}

// sound reports whether a frame comes from the guest's own addresses, goes to where a stack lets a program
// send, is complete, and has the right lengths and checksums.
func (p *plain) sound(frame []byte, h *capture.Headers) bool {
	dst := h.Dst.Addr()
	if len(frame) > netstack.MaxFrame || !bytes.Equal(frame[:6], pcapgen.GatewayMAC) || !bytes.Equal(frame[6:12], p.mac) || h.Fragment || !sendable(dst) {
		return false
	}
	if dst.Is4() {
		ip := header.IPv4(frame[14:])
		return h.Src.Addr() == pcapgen.Guest4 && ip.IsValid(len(ip)) && len(ip.Options()) == 0 && ip.IsChecksumValid() &&
			ip.TTL() >= minHops && sums(ip.TransportProtocol(), ip.SourceAddress(), ip.DestinationAddress(), ip.Payload())
	}
	ip := header.IPv6(frame[14:])
	return h.Src.Addr() == pcapgen.Guest6 && ip.IsValid(len(ip)) && ip.HopLimit() >= minHops &&
		sums(tcpip.TransportProtocolNumber(ip.NextHeader()), ip.SourceAddress(), ip.DestinationAddress(), ip.Payload())
}

// sums reports whether a transport's checksum is right.
func sums(proto tcpip.TransportProtocolNumber, src, dst tcpip.Address, b []byte) bool {
	switch {
	case proto == header.ICMPv4ProtocolNumber:
		return checksum.Checksum(b, 0) == 0xffff
	case proto == header.UDPProtocolNumber && binary.BigEndian.Uint16(b[6:]) == 0:
		return src.Len() == 4
	}
	return checksum.Checksum(b, header.PseudoHeaderChecksum(proto, src, dst, uint16(len(b)))) == 0xffff
}

// sendable reports whether a stack lets a program send to an address by way of its gateway: not to groups,
// not to nobody. An IPv4 address in IPv6 leaves as IPv4, which is another packet.
func sendable(dst netip.Addr) bool {
	return !dst.IsMulticast() && !dst.IsUnspecified() && !dst.Is4In6() &&
		dst != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && dst != netip.MustParseAddr("192.168.127.255")
}
