package pcapgen

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// checksum is that of the internet (RFC 1071).
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// datagram6 is a frame with a datagram of nine bytes to a public IPv6 address.
func (t *tape) datagram6(port layers.UDPPort) []byte {
	eth, ip := t.ip(true, netip.MustParseAddr(good6), layers.IPProtocolUDP)
	udp := &layers.UDP{SrcPort: layers.UDPPort(t.nextPort()), DstPort: port}
	must(udp.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer)))
	return pack(eth, ip, udp, gopacket.Payload("a message"))
}

// icmp6 sends a message of neighbour discovery's hop limit; body is what follows its checksum.
func (t *tape) icmp6(to net.HardwareAddr, src, dst netip.Addr, kind uint8, body []byte) {
	eth := ether(true, layers.EthernetTypeIPv6)
	eth.DstMAC = to
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}
	must(icmp.SetNetworkLayerForChecksum(ip))
	t.send(pack(eth, ip, icmp, gopacket.Payload(body)))
}

// groupMAC is where frames to a multicast address go.
func groupMAC(a netip.Addr) net.HardwareAddr {
	b := a.AsSlice()
	if a.Is4() {
		return net.HardwareAddr{1, 0, 0x5e, b[1] & 0x7f, b[2], b[3]}
	}
	return append(net.HardwareAddr{0x33, 0x33}, b[12:]...)
}

var allNodes = netip.MustParseAddr("ff02::1")

func discovery(t *tape) {
	neighbour := netip.MustParseAddr("fd6d:7362::3")
	about := func(target netip.Addr, flags byte, option byte) []byte {
		body := append([]byte{flags, 0, 0, 0}, target.AsSlice()...)
		if option != 0 {
			body = append(append(body, option, 1), GuestMAC...)
		}
		return body
	}
	solicited := func(target netip.Addr) netip.Addr {
		b := target.As16()
		return netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
	}
	for _, target := range []netip.Addr{neighbour, netip.MustParseAddr(good6)} {
		t.icmp6(groupMAC(solicited(target)), Guest6, solicited(target), 135, about(target, 0, 1))
	}
	t.icmp6(groupMAC(allNodes), Guest6, allNodes, 136, about(Guest6, 0x20, 2))
	t.icmp6(groupMAC(allNodes), Guest6, allNodes, 136, about(neighbour, 0x20, 2))
	t.icmp6(groupMAC(solicited(Gateway6)), netip.IPv6Unspecified(), solicited(Gateway6), 135, about(Gateway6, 0, 0))
	routers := netip.MustParseAddr("ff02::2")
	t.icmp6(groupMAC(routers), Guest6, routers, 133, make([]byte, 4))
}

func groups(t *tape) {
	group, nodes := []byte{239, 1, 2, 3}, []byte{0, 0, 0, 0}
	for _, m := range []struct {
		kind byte
		to   string
		body []byte
	}{
		{0x12, "239.1.2.3", group}, {0x16, "239.1.2.3", group}, {0x17, "224.0.0.2", group}, {0x11, "224.0.0.1", nodes},
		{0x22, "224.0.0.22", append([]byte{0, 0, 0, 1, 4, 0, 0, 0}, group...)},
	} {
		eth, ip := t.ip(true, netip.MustParseAddr(m.to), layers.IPProtocolIGMP)
		eth.DstMAC = groupMAC(netip.MustParseAddr(m.to))
		ip.(*layers.IPv4).TTL = 1
		msg := append([]byte{m.kind, 0, 0, 0}, m.body...)
		binary.BigEndian.PutUint16(msg[2:], checksum(msg))
		t.send(pack(eth, ip, gopacket.Payload(msg)))
	}
	streams := netip.MustParseAddr("ff0e::1:2:3").AsSlice()
	for _, kind := range []uint8{130, 131, 132} {
		body := append(make([]byte, 4), streams...)
		t.icmp6(groupMAC(allNodes), Guest6, allNodes, kind, body)
	}
	reports := netip.MustParseAddr("ff02::16")
	t.icmp6(groupMAC(reports), Guest6, reports, 143, append([]byte{0, 0, 0, 1, 4, 0, 0, 0}, streams...))
}

// pieces6 are fragments of IPv6 packets to one address.
type pieces6 struct {
	t  *tape
	id uint32
	to netip.Addr
}

// next begins another packet, to an address of its own.
func (p *pieces6) next() {
	p.id++
	p.to = netip.MustParseAddr(fmt.Sprintf("2606:2800:21f:cb07::%d", p.id))
}

// send sends a piece; kind is the header that it begins with.
func (p *pieces6) send(kind byte, piece []byte, offset int, more bool) {
	head := []byte{kind, 0, 0, 0, 0, 0, 0, 0}
	at := uint16(offset)
	if more {
		at |= 1
	}
	binary.BigEndian.PutUint16(head[2:], at)
	binary.BigEndian.PutUint32(head[4:], p.id)
	eth, ip := p.t.ip(true, p.to, layers.IPProtocolIPv6Fragment)
	p.t.send(pack(eth, ip, gopacket.Payload(append(head, piece...))))
}

// syn is the TCP part of a SYN.
func (p *pieces6) syn() []byte {
	_, ip := p.t.ip(true, p.to, layers.IPProtocolTCP)
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(p.t.nextPort()), DstPort: 443, Seq: 1, SYN: true, Window: 1000,
		Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: be16(1220)}},
	}
	must(tcp.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer)))
	return pack(tcp)
}

func fragments6(t *tape) {
	const tcp, destination = 6, 60
	options := append([]byte{tcp, 7, 1, 60}, make([]byte, 60)...) // 64 bytes of padding before TCP
	p := &pieces6{t: t}
	p.next()
	p.send(destination, options, 0, true)
	p.send(destination, p.syn(), len(options), false)
	p.next()
	s := p.syn()
	p.send(tcp, s[:16], 0, true)
	p.send(tcp, s[8:], 8, false)
	p.next()
	p.send(tcp, p.syn(), 0, false)
	p.next()
	s = p.syn()
	p.send(tcp, s[:16], 0, true)
	p.send(tcp, s[16:], 16, false)
	p.next()
	p.send(tcp, p.syn()[:16], 0, true)
}

func hopByHop(t *tape) {
	shapes := [][]byte{
		{17, 0, 1, 4, 0, 0, 0, 0},                         // padding
		{17, 0, 5, 2, 0, 0, 1, 0},                         // router alert
		{17, 0, 0xc2, 4, 0, 1, 0, 0},                      // jumbo payload
		{17, 0, 0x9e, 4, 0, 0, 0, 0},                      // unknown: discard and complain
		{0, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0}, // twice
	}
	for i := range 200 {
		const head = 14 + 40
		f, options := t.datagram6(5000), shapes[i%len(shapes)]
		f[20] = 0 // next header
		binary.BigEndian.PutUint16(f[18:], uint16(len(f)-head+len(options)))
		t.send(slices.Concat(f[:head], options, f[head:]))
	}
	t.send(t.datagram6(5001))
}
