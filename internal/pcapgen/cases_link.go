package pcapgen

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// linkCases are frames that the guard must throw away, whatever the policy.
func linkCases() []Case {
	all := []Case{
		{Name: "link-short", Odd: true,
			Title: "Frames of 0 to 13 bytes, shorter than an Ethernet header: some switches crash on " +
				"them.",
			Story: "Fourteen frames have 0 to 13 bytes, all ones, and so are shorter than an Ethernet " +
				"header. A switch that reads addresses and type before it checks the length reads past " +
				"the end, crashes, or takes bytes of another frame. The guard drops them all before " +
				"anything else looks; there is no flow, and the gateway serves on.",
			build: func(t *tape) {
				for n := range 14 {
					t.send(bytes.Repeat([]byte{0xff}, n))
				}
			}},
		{Name: "link-ethertypes", Odd: true,
			Title: "VLAN tags, double tags, an LLC length, and types that nobody serves here.",
			Story: "The same SYN to a public host comes in five wrappings: a VLAN tag, two tags, an LLC " +
				"length, the type of LLDP, and the type of IPv6 before an IPv4 packet. A tag could take " +
				"a frame to another network of the host, and a wrong type could make two readers see " +
				"different packets. All five are dropped, and nothing is dialled.",
			build: func(t *tape) {
				inner := t.syn4(good)[14:]
				for _, head := range [][]byte{{0x81, 0, 0, 1, 8, 0}, {0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0}, {0, 46}, {0x88, 0xcc}, {0x86, 0xdd}} {
					t.send(append(append(bytes.Clone(ether12()), head...), inner...))
				}
			}},
		{Name: "link-source-mac",
			Title: "Frames from a MAC that is not the leased one: another guest's, the gateway's, a " +
				"group's.",
			Story: "Three SYNs to a public host come from MACs that are not the guest's: another " +
				"guest's, the gateway's own and a multicast group's. With a borrowed MAC a guest could " +
				"act in a neighbour's name or poison the tables that lead to it. Which MAC was leased is " +
				"not in this capture, so that the review takes the first for the guest's and shows a flow; " +
				"the other two no guest can have. The gateway's frame guard drops all three, and nothing " +
				"is dialled.",
			build: func(t *tape) {
				for _, mac := range []net.HardwareAddr{{2, 0, 0, 0, 0, 9}, GatewayMAC, {1, 0, 0x5e, 0, 0, 1}} {
					f := t.syn4(good)
					copy(f[6:], mac)
					t.send(f)
				}
			}},
		{Name: "link-source-ip",
			Title: "Packets from addresses that were not leased: a neighbour's, the gateway's, loopback, " +
				"a public one.",
			Story: "Four datagrams to a public host come from addresses that were not leased: a " +
				"neighbour's, the gateway's, loopback and 8.8.8.8. Forged sources put the blame on " +
				"somebody else or draw answers to a victim. The frame guard drops all four, in the review " +
				"too, which knows the addresses of msb's link; none is seen upstream.",
			build: func(t *tape) {
				for _, a := range []net.IP{{192, 168, 127, 3}, {192, 168, 127, 1}, {127, 0, 0, 1}, {8, 8, 8, 8}} {
					ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: a, DstIP: net.ParseIP(evil).To4()}
					udp := &layers.UDP{SrcPort: 5, DstPort: 6}
					must(udp.SetNetworkLayerForChecksum(ip))
					t.send(pack(ether(true, layers.EthernetTypeIPv4), ip, udp, gopacket.Payload("x")))
				}
			}},
		{Name: "link-arp", Odd: true,
			Title: "ARP that claims the gateway's address, asks for strangers, and announces without " +
				"being asked.",
			Story: "The guest broadcasts four ARP packets: an answer that claims the gateway's address, " +
				"a question for a neighbour, an announcement of itself, and a question in the name of a " +
				"made-up machine. With the first or the last it could draw others' traffic to itself on " +
				"a shared link. None is answered or learned from, no flow comes of it, and nothing " +
				"leaves.",
			build: func(t *tape) {
				for _, a := range []struct {
					op            uint16
					mac           net.HardwareAddr
					sender, asked string
				}{{2, GuestMAC, "192.168.127.1", "192.168.127.2"}, {1, GuestMAC, "192.168.127.2", "192.168.127.9"}, {2, GuestMAC, "192.168.127.2", "192.168.127.2"}, {1, net.HardwareAddr{2, 9, 9, 9, 9, 9}, "192.168.127.9", "192.168.127.1"}} {
					t.send(pack(&layers.Ethernet{SrcMAC: GuestMAC, DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeARP},
						&layers.ARP{AddrType: 1, Protocol: 0x800, HwAddressSize: 6, ProtAddressSize: 4, Operation: a.op,
							SourceHwAddress: a.mac, SourceProtAddress: net.ParseIP(a.sender).To4(), DstHwAddress: make([]byte, 6), DstProtAddress: net.ParseIP(a.asked).To4()}))
				}
			}},
		{Name: "link-rogue-dhcp",
			Title: "The guest plays DHCP server, and floods the real one with requests from MACs that it " +
				"makes up.",
			Story: "The guest broadcasts one DHCP offer, as if it were the server, then nineteen " +
				"requests for a lease with invented MACs. A false offer could give a neighbour a route " +
				"through the attacker, and the flood could use up all leases. The guard drops " +
				"the offer, in the review too; no invented MAC gets a lease, and nothing leaves.",
			build: func(t *tape) {
				for i := range 20 {
					mac := net.HardwareAddr{2, 7, 7, 7, 7, byte(i)}
					d := &layers.DHCPv4{Operation: layers.DHCPOpRequest, HardwareType: 1, HardwareLen: 6, Xid: uint32(i), ClientHWAddr: mac}
					src, dst, from, to := net.IP{0, 0, 0, 0}, net.IP{255, 255, 255, 255}, layers.UDPPort(68), layers.UDPPort(67)
					kind := layers.DHCPMsgTypeDiscover
					if i == 0 {
						d.Operation, d.YourClientIP, kind = layers.DHCPOpReply, net.IP{192, 168, 127, 66}, layers.DHCPMsgTypeOffer
						src, from, to = net.IP{192, 168, 127, 2}, 67, 68
					}
					d.Options = layers.DHCPOptions{layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(kind)})}
					ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: src, DstIP: dst}
					udp := &layers.UDP{SrcPort: from, DstPort: to}
					must(udp.SetNetworkLayerForChecksum(ip))
					t.send(pack(&layers.Ethernet{SrcMAC: GuestMAC, DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeIPv4}, ip, udp, d))
				}
			}},
		{Name: "link-rogue-ra",
			Title: "Router advertisements and neighbour advertisements of the gateway's " +
				"address by the guest.",
			Story: "The guest sends a router advertisement, then a neighbour advertisement that claims " +
				"the gateway's IPv6 address. On a shared network the first would make it everyone's " +
				"router and the second would turn the gateway's traffic towards it. Guests may announce " +
				"only themselves: the guard drops both frames, no flow is made, and nothing is seen " +
				"upstream.",
			build: func(t *tape) {
				for _, kind := range []uint8{layers.ICMPv6TypeRouterAdvertisement, layers.ICMPv6TypeNeighborAdvertisement} {
					eth, ip := t.ip(true, Gateway6, layers.IPProtocolICMPv6)
					six := ip.(*layers.IPv6)
					six.HopLimit = 255
					icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}
					must(icmp.SetNetworkLayerForChecksum(six))
					var body gopacket.SerializableLayer = &layers.ICMPv6RouterAdvertisement{HopLimit: 64, RouterLifetime: 1800}
					if kind == layers.ICMPv6TypeNeighborAdvertisement {
						body = &layers.ICMPv6NeighborAdvertisement{Flags: 0x20, TargetAddress: Gateway6.AsSlice()}
					}
					t.send(pack(eth, six, icmp, body))
				}
			}},
		{Name: "ip-options", Odd: true,
			Title: "IPv4 options: source routes that would lead around whoever judges the destination.",
			Story: "Four SYNs carry IPv4 options: loose and strict source routes by way of 10.0.0.1, a " +
				"recorded route and a timestamp. A router that obeys a source route takes the packet " +
				"somewhere other than the destination that was judged. The frame guard drops every packet " +
				"with options, in the review too, and nothing is dialled.",
			build: func(t *tape) {
				for _, kind := range []byte{131, 137, 7, 68} {
					f := t.syn4(good)
					options := []byte{kind, 7, 4, 10, 0, 0, 1, 0}
					f = append(append(bytes.Clone(f[:34]), options...), f[34:]...)
					f[14] = 0x47
					binary.BigEndian.PutUint16(f[16:], binary.BigEndian.Uint16(f[16:])+8)
					t.send(ipChecksum(f))
				}
			}},
		{Name: "ip6-extensions", Odd: true,
			Title: "IPv6 extension headers: hop-by-hop options, a routing header of type 0, a chain of " +
				"destination options.",
			Story: "Five IPv6 datagrams have extension headers in front of UDP: hop-by-hop options, a " +
				"routing header of type 0, four destination options in a row, a late fragment without " +
				"its first, and a mobility header. Such chains push the ports out of a filter's sight or " +
				"lead a packet elsewhere. None becomes a flow, and nothing is sent on.",
			build: func(t *tape) {
				for _, chain := range [][]byte{{0}, {43}, {60, 60, 60, 60}, {44}, {135}} {
					t.send(t.withExtensions(chain))
				}
			}},
		{Name: "ip-fragments", Odd: true,
			Title: "Fragments: overlapping, tiny first ones that hide the flags, one that never ends, an " +
				"offset beyond 64 KiB.",
			Story: "A SYN comes in pieces: two that fit, two that overlap, a tiny first without its " +
				"rest, one beyond a hole, and one past 64 KiB. Filters that judge pieces see ports " +
				"without flags, or other bytes than the receiver joins. The review reads no fragments; " +
				"the gateway judges what is whole, so the fitting pair leads to the one dial that " +
				"everything public allows.",
			build: func(t *tape) {
				whole := t.syn4(good)[34:]
				for _, f := range []struct{ from, to, offset, more int }{{0, 8, 0, 1}, {8, 20, 1, 0}, {0, 16, 0, 1}, {8, 20, 1, 0}, {0, 8, 0, 1}, {0, 8, 100, 1}, {0, 8, 0x1fff, 0}} {
					t.send(t.fragment(whole[f.from:f.to], f.offset, f.more == 1))
				}
			}},
		{Name: "ip-lies", Odd: true,
			Title: "Lengths and checksums that lie: total length short and long, header length 4 and 15, " +
				"bad checksums, version 5.",
			Story: "Nine SYNs lie about themselves: a total length too short or too long, an IP header " +
				"of 4 or 15 words, version 5, wrong checksums of IP and TCP, a TCP header of 1 or 15 " +
				"words. A parser that believes them reads outside the packet. The review, which " +
				"looks at no checksums, shows two as allowed; the gateway discards all nine and dials nothing.",
			build: func(t *tape) {
				for _, lie := range []func([]byte){
					func(f []byte) { binary.BigEndian.PutUint16(f[16:], 20) },
					func(f []byte) { binary.BigEndian.PutUint16(f[16:], 9000) },
					func(f []byte) { f[14] = 0x44 }, func(f []byte) { f[14] = 0x4f }, func(f []byte) { f[14] = 0x55 },
					func(f []byte) { f[24] ^= 0xff }, func(f []byte) { f[50] ^= 0xff }, func(f []byte) { f[46] = 0x10 }, func(f []byte) { f[46] = 0xf0 },
				} {
					f := t.syn4(good)
					lie(f)
					t.send(f)
				}
			}},
		{Name: "ip-protocols",
			Title: "Protocols that are not TCP, UDP or ICMP: ESP, GRE with IPv4 in it, SCTP.",
			Story: "The guest sends ESP, GRE with an IPv4 packet inside and SCTP to the gateway. Tunnels " +
				"and rare transports carry traffic past rules that speak of ports and names, and hosts " +
				"run code for them that few have tested. Only TCP, UDP and ICMP are taken from a guest: " +
				"the others are dropped without becoming flows, even under a policy that allows " +
				"everything public.",
			build: func(t *tape) {
				eth, ip := t.ip(true, gatewayDNS.Addr(), layers.IPProtocolESP)
				t.send(pack(eth, ip, gopacket.Payload(bytes.Repeat([]byte{1}, 40))))
				eth, ip = t.ip(true, gatewayDNS.Addr(), layers.IPProtocolGRE)
				t.send(pack(eth, ip, &layers.GRE{Protocol: layers.EthernetTypeIPv4}, &layers.IPv4{Version: 4, TTL: 1, Protocol: 253, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}, gopacket.Payload("inside")))
				eth, ip = t.ip(true, gatewayDNS.Addr(), layers.IPProtocolSCTP)
				t.send(pack(eth, ip, &layers.SCTP{SrcPort: 1, DstPort: 2}))
			}},
		{Name: "ip-multicast", Odd: true,
			Title: "Multicast and broadcast of both families, as discovery protocols send them.",
			Story: "The guest sends datagrams to mDNS in both families, to SSDP, to the general " +
				"broadcast address and to its subnet's. On the host's network they would find devices " +
				"and call on all of them at once. The frame guard drops all five, in the review too, and " +
				"none reaches the host's network.",
			build: func(t *tape) {
				for _, dst := range []string{"224.0.0.251:5353", "239.255.255.250:1900", "255.255.255.255:9999", "192.168.127.255:138", "[ff02::fb]:5353"} {
					t.udp(dst, []byte("anybody there"))
				}
			}},
		{Name: "icmp-redirect", Odd: true,
			Title: "ICMP redirects, timestamps and errors about connections of its own, sent by the " +
				"guest.",
			Story: "The guest sends the gateway a redirect, a timestamp request, an unreachable and a " +
				"time-exceeded message that quote a SYN to a public host. A redirect could bend the " +
				"gateway's routes, a forged error could end a connection, and a timestamp tells of the " +
				"host's clock. No state changes for them: nothing is judged as a flow, and nothing is " +
				"sent out.",
			build: func(t *tape) {
				for _, kind := range []uint8{layers.ICMPv4TypeRedirect, layers.ICMPv4TypeTimestampRequest, layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4TypeTimeExceeded} {
					eth, ip := t.ip(true, gatewayDNS.Addr(), layers.IPProtocolICMPv4)
					t.send(pack(eth, ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, 1)}, gopacket.Payload(t.syn4(good)[14:42])))
				}
			}},
		{Name: "ping-of-death", Odd: true,
			Title: "An echo request whose last fragment ends beyond 64 KiB.",
			Story: "An echo request to the gateway comes in 46 fragments, of which the last begins " +
				"inside 64 KiB and ends beyond it. Joined without a check the packet overruns the buffer " +
				"of the largest size that IP allows, which has crashed whole systems. Fragmented ICMP " +
				"serves no guest and is dropped piece by piece; no ping is answered, and the gateway " +
				"lives on.",
			build: func(t *tape) {
				piece := append([]byte{8, 0, 0, 0, 0, 1, 0, 1}, make([]byte, 1472)...)
				for at := 0; at < 8190; at += 185 {
					t.send(t.fragmentOf(1, Gateway4, piece, at, true))
				}
				t.send(t.fragmentOf(1, Gateway4, piece, 8189, false))
			}},
	}
	for i := range all {
		all[i].Policy = everything
	}
	return all
}

// ether12 are the addresses of a frame of the guest's.
func ether12() []byte { return append(bytes.Clone(GatewayMAC), GuestMAC...) }

// syn4 is a frame with a SYN to port 443 of an IPv4 address.
func (t *tape) syn4(dst string) []byte {
	peer := net.ParseIP(dst).To4()
	t.id++
	ip := &layers.IPv4{Version: 4, TTL: 64, Id: t.id, Protocol: layers.IPProtocolTCP, SrcIP: Guest4.AsSlice(), DstIP: peer}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(t.nextPort()), DstPort: 443, Seq: 1, SYN: true, Window: 1000}
	must(tcp.SetNetworkLayerForChecksum(ip))
	return pack(ether(true, layers.EthernetTypeIPv4), ip, tcp)
}

// ipChecksum fixes the checksum of an IPv4 header.
func ipChecksum(f []byte) []byte {
	f[24], f[25] = 0, 0
	binary.BigEndian.PutUint16(f[24:], checksum(f[14:14+int(f[14]&15)*4]))
	return f
}

func (t *tape) fragment(piece []byte, offset int, more bool) []byte {
	return t.fragmentOf(6, netip.MustParseAddr(good), piece, offset, more)
}

func (t *tape) fragmentOf(proto layers.IPProtocol, dst netip.Addr, piece []byte, offset int, more bool) []byte {
	ip := &layers.IPv4{Version: 4, TTL: 64, Id: 4242, Protocol: proto, FragOffset: uint16(offset), SrcIP: Guest4.AsSlice(), DstIP: dst.AsSlice()}
	if more {
		ip.Flags = layers.IPv4MoreFragments
	}
	return pack(ether(true, layers.EthernetTypeIPv4), ip, gopacket.Payload(piece))
}

// withExtensions is a datagram behind a chain of extension headers.
func (t *tape) withExtensions(chain []byte) []byte {
	var body []byte
	for i := range chain {
		next := byte(17)
		if i+1 < len(chain) {
			next = chain[i+1]
		}
		body = append(body, next, 0, 1, 4, 0, 0, 0, 0)
	}
	body = append(body, 0x13, 0x88, 0x13, 0x89, 0, 9, 0, 0, 'x')
	_, ip := t.ip(true, Gateway6, layers.IPProtocol(chain[0]))
	six := ip.(*layers.IPv6)
	head := append(ether12(), 0x86, 0xdd, 0x60, 0, 0, 0)
	head = append(append(head, be16(len(body))...), chain[0], 64)
	head = append(append(head, six.SrcIP...), net.ParseIP(good6)...)
	return append(head, body...)
}
