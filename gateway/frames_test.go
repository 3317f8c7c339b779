package gateway_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/msb-project/msb/audit"
)

// packet is a frame of the guest's with an IP packet of any kind to dst. Of TCP and UDP it makes the checksum.
func (a *attempts) packet(dst string, proto layers.IPProtocol, payload []byte) []byte {
	l, to := a.w.Gateway.Link(), netip.MustParseAddr(dst)
	eth := &layers.Ethernet{SrcMAC: a.w.Guest.MAC(), DstMAC: l.GatewayMAC, EthernetType: layers.EthernetTypeIPv4}
	var ip gopacket.SerializableLayer = &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: l.Guest4.AsSlice(), DstIP: to.AsSlice()}
	if to.Is6() {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: l.Guest6.AsSlice(), DstIP: net.IP(to.AsSlice())}
	}
	return a.ethernet(eth, ip, gopacket.Payload(payload))
}

func (a *attempts) ethernet(ls ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
		a.t.Fatal(err)
	}
	return buf.Bytes()
}

// segment is a frame with a bare TCP segment.
func (a *attempts) segment(dst string, port uint16, flags byte) []byte {
	tcp := make([]byte, 20)
	binary.BigEndian.PutUint16(tcp, a.port)
	binary.BigEndian.PutUint16(tcp[2:], port)
	tcp[7], tcp[12], tcp[13], tcp[14] = 1, 5<<4, flags, 4
	l, to := a.w.Gateway.Link(), netip.MustParseAddr(dst)
	src := l.Guest4
	if to.Is6() {
		src = l.Guest6
	}
	sum := uint32(layers.IPProtocolTCP) + uint32(len(tcp))
	for _, b := range [][]byte{src.AsSlice(), to.AsSlice(), tcp} {
		for i := 0; i < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
	return a.packet(dst, layers.IPProtocolTCP, tcp)
}

// frames are frames that get no further than the gateway, by what they are.
func (a *attempts) frames() map[string]func() []byte {
	const denied4, denied6, mapped = "45.33.32.156", "2600:3c01::1", "::ffff:127.0.0.1"
	const fin, syn, rst, psh, ack, urg = 1, 2, 4, 8, 16, 32
	zero := make([]byte, 40)
	m := map[string]func() []byte{
		"icmp redirect": func() []byte {
			return a.packet(denied4, layers.IPProtocolICMPv4, append([]byte{5, 1, 0xfa, 0xfe}, zero...))
		},
		"tcp over 6 to mapped":       func() []byte { return a.segment(mapped, 80, syn) },
		"udp over 6 to mapped":       func() []byte { return a.packet(mapped, layers.IPProtocolUDP, zero) },
		"fragment of odd length":     func() []byte { return a.fragment(denied4, 0, true, 13) },
		"empty fragment":             func() []byte { return a.fragment(denied4, 8, false, 0) },
		"fragment beyond the end":    func() []byte { return a.fragment(denied4, 8190, false, 100) },
		"fragment of odd length, 6":  func() []byte { return a.fragment(denied6, 0, true, 13) },
		"empty fragment, 6":          func() []byte { return a.fragment(denied6, 8, false, 0) },
		"fragment beyond the end, 6": func() []byte { return a.fragment(denied6, 8190, false, 100) },
		"icmp in a fragment":         func() []byte { return a.packet(denied6, 44, append([]byte{58}, zero[:23]...)) },
		"gre":                        func() []byte { return a.packet(denied4, 47, zero) },
		"sctp over 6":                func() []byte { return a.packet(denied6, 132, zero) },
		"wrong sum":                  func() []byte { f := a.segment(denied4, 80, syn); f[50] ^= 1; return f },
		"wrong sum, 6":               func() []byte { f := a.segment(denied6, 80, syn); f[70] ^= 1; return f },
		"wrong sum of ip":            func() []byte { f := a.segment(denied4, 80, syn); f[24] ^= 1; return f },
		"vlan":                       func() []byte { f := a.segment(denied4, 80, syn); f[12], f[13] = 0x81, 0; return f },
	}
	for _, next := range []layers.IPProtocol{0, 43, 50, 51, 59, 60, 135} {
		m["extension "+next.String()] = func() []byte { return a.packet(denied6, next, append([]byte{17, 0, 1, 4, 0, 0, 0, 0}, zero...)) }
	}
	for name, flags := range map[string]byte{
		"null": 0, "fin": fin, "ack": ack, "fin, ack": fin | ack, "christmas tree": fin | psh | urg, "syn, ack": syn | ack,
		"syn, rst": syn | rst, "all": 63, "data": psh | ack, "syn": syn, "syn, fin": syn | fin,
	} {
		m[name+" scan"] = func() []byte { return a.segment(denied4, 80, flags) }
		m[name+" scan, 6"] = func() []byte { return a.segment(denied6, 80, flags) }
		m[name+" scan of a port that is peeked at"] = func() []byte { return a.segment(site, 443, flags) }
		m[name+" scan of the resolver"] = func() []byte { return a.segment("9.9.9.9", 53, flags) }
	}
	return m
}

// fragment is one of n bytes of UDP at an offset in units of eight bytes.
func (a *attempts) fragment(dst string, offset uint16, more bool, n int) []byte {
	l, to := a.w.Gateway.Link(), netip.MustParseAddr(dst)
	payload := make([]byte, n)
	if to.Is6() {
		head := []byte{byte(layers.IPProtocolUDP), 0, 0, 0, 0, 0, byte(a.port >> 8), byte(a.port)}
		binary.BigEndian.PutUint16(head[2:], offset<<3)
		if more {
			head[3] |= 1
		}
		return a.packet(dst, layers.IPProtocolIPv6Fragment, append(head, payload...))
	}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, Id: a.port, FragOffset: offset, SrcIP: l.Guest4.AsSlice(), DstIP: to.AsSlice()}
	if more {
		ip.Flags = layers.IPv4MoreFragments
	}
	eth := &layers.Ethernet{SrcMAC: a.w.Guest.MAC(), DstMAC: l.GatewayMAC, EthernetType: layers.EthernetTypeIPv4}
	return a.ethernet(eth, ip, gopacket.Payload(payload))
}

// TestI1_EveryDroppedFrameIsCounted sends frames that no flow comes of, or a denied one: the counts of the lines
// are the frames.
func TestI1_EveryDroppedFrameIsCounted(t *testing.T) {
	t.Parallel()
	const sent = 5
	for name := range (&attempts{}).frames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startAttempts(t, attemptsPolicy, 0)
			for range sent {
				a.next()
				a.w.Guest.Inject(a.frames()[name]())
			}
			a.end()
			n := verdicts(a.w) - 2 // the questions of startAttempts and end
			for _, e := range a.w.Audit.Events(audit.LinkDrop) {
				n += e.Count
			}
			if n != sent {
				t.Errorf("%d frames are accounted for, want %d: %+v", n, sent, a.w.Audit.All())
			}
		})
	}
}
