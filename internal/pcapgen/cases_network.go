package pcapgen

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// networkCases are more of what a guest's kernel can put on its link, most of it in IPv6.
func networkCases() []Case {
	all := []Case{
		{Name: "link-oversized", Odd: true,
			Title: "Frames larger than the link takes: giant, jumbo, and one byte too long.",
			Story: "The guest sends frames of 9,014 bytes, of 65,536 and of one byte more, each with a SYN to a " +
				"public host in front. Whoever has a buffer for 1,514 bytes writes behind it, and whoever " +
				"trusts the length in the frame's IP header reads behind the frame. The link takes frames up " +
				"to 64 KiB, so the first two are packets with a tail that nobody reads; the last is dropped " +
				"unread.",
			build: func(t *tape) {
				for i, size := range []int{9014, 65536, 65537} {
					f := t.syn4(fmt.Sprintf("93.184.215.%d", 101+i))
					t.send(append(f, make([]byte, size-len(f))...))
				}
			}},
		{Name: "link-source-ip6",
			Title: "IPv6 packets from addresses that were not leased.",
			Story: "Seven datagrams to a public host come from IPv6 addresses that were not leased: a " +
				"neighbour's, the gateway's, loopback, a public one, another link-local one, the unspecified " +
				"one and a mapped one. Guards are often written for IPv4 first, and a forged source puts the " +
				"blame on others. The frame guard drops all seven, in the review too. Only an eighth, from the " +
				"guest's own address, is seen upstream.",
			build: func(t *tape) {
				for _, a := range []string{"fd6d:7362::3", "fd6d:7362::1", "::1", "2001:4860:4860::8888", "fe80::dead", "::", "::ffff:192.168.127.2"} {
					src := net.ParseIP(a)
					ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: src.To16(), DstIP: net.ParseIP(good6)}
					udp := &layers.UDP{SrcPort: 5, DstPort: 6}
					must(udp.SetNetworkLayerForChecksum(ip))
					t.send(pack(ether(true, layers.EthernetTypeIPv6), ip, udp, gopacket.Payload("x")))
				}
				t.send(t.datagram6(5001))
			}},
		{Name: "link-ndp", Odd: true,
			Title: "Neighbour discovery that asks for strangers, claims others' addresses, and announces without being asked.",
			Story: "The guest asks who has a neighbour's address and a public one, announces itself without " +
				"being asked, claims a neighbour's address, looks whether the gateway's address is taken, and " +
				"solicits routers. On a shared link such packets move other machines' traffic to the " +
				"attacker, or keep them from getting an address. The gateway answers for itself only and " +
				"learns nothing; no flow comes of it, and nothing leaves.",
			build: discovery},
		{Name: "ip-groups", Odd: true,
			Title: "IGMP and MLD: joins, leaves, and queries as if the guest were the router.",
			Story: "The guest joins and leaves multicast groups by IGMP in its three versions and by MLD in two, " +
				"and sends the queries that only a router sends. On the host's network a join would bring " +
				"streams of other machines to it, and a query with a better address would make it the one " +
				"that decides. Groups end at the link: all of it is dropped, and nothing reaches a network.",
			build: groups},
		{Name: "ip-tunnels",
			Title: "IP inside of IP: to a public host go packets for a metadata service.",
			Story: "The guest wraps SYNs for a metadata service and for 10.0.0.1 into IP-in-IP, 6in4, GRE, ESP " +
				"and L2TP packets to a public host. A filter that judges the outer address would let them " +
				"pass, and a tunnel's end, perhaps the host itself, would unwrap them. Only TCP, UDP and ICMP " +
				"are taken from a guest: none of the five becomes a flow, although everything public is open.",
			build: func(t *tape) {
				for _, proto := range []layers.IPProtocol{layers.IPProtocolIPv4, layers.IPProtocolIPv6, layers.IPProtocolGRE, layers.IPProtocolESP, 115} {
					eth, ip := t.ip(true, netip.MustParseAddr(evil), proto)
					inner := t.syn4("169.254.169.254")[14:]
					switch proto {
					case layers.IPProtocolIPv6:
						_, six := t.ip(true, netip.MustParseAddr("fd00:ec2::254"), layers.IPProtocolNoNextHeader)
						inner = pack(six)
					case layers.IPProtocolGRE:
						inner = append([]byte{0, 0, 8, 0}, inner...)
					default:
					}
					t.send(pack(eth, ip, gopacket.Payload(inner)))
				}
			}},
		{Name: "ip-fragment-flood",
			Title: "Three hundred first fragments that never end.",
			Story: "The guest sends three hundred first fragments of as many packets, and never the rest of any. " +
				"Each waits for its rest, so memory and timers grow with every packet, and honest fragments " +
				"find no place. What waits is bounded and expires; the gateway serves on, no packet comes of " +
				"it, and nothing is dialled.",
			build: func(t *tape) {
				for i := range 300 {
					f := t.fragmentOf(layers.IPProtocolUDP, netip.MustParseAddr(good), make([]byte, 1400), 0, true)
					binary.BigEndian.PutUint16(f[18:], uint16(i))
					t.send(ipChecksum(f))
				}
			}},
		{Name: "ip6-fragments", Odd: true,
			Title: "IPv6 fragments: ports in the second piece, overlapping ones, a whole packet as one fragment.",
			Story: "A SYN comes in IPv6 fragments: behind a header chain so long that its ports lie in the " +
				"second piece, in overlapping pieces, as one fragment that is the whole packet, in two pieces " +
				"that fit, and as a first piece without its rest. Whoever judges pieces sees no port, or " +
				"other bytes than the receiver joins; RFC 5722 and 7112 forbid the first two. Only what is " +
				"whole is judged: the third and the fourth, which everything public allows, are dialled, and " +
				"nothing else.",
			build: fragments6},
		{Name: "ip6-hop-by-hop-flood", Odd: true,
			Title: "Two hundred packets with hop-by-hop options, which every router on the way must read.",
			Story: "The guest sends two hundred IPv6 datagrams with hop-by-hop options: padding, router alert, " +
				"jumbo length, unknown ones that ask for an error, two such headers. Routers handle these " +
				"slowly, one by one, and each unknown option may call for an ICMP error to a source of the " +
				"attacker's choice. None becomes a flow, no error goes to a stranger; an ordinary datagram " +
				"behind them is sent on.",
			build: hopByHop},
		{Name: "ip6-lies", Odd: true,
			Title: "IPv6 and UDP lengths that lie, and checksums that are wrong or missing.",
			Story: "Seven IPv6 datagrams lie: a payload length of zero, too short, too long, a UDP length below " +
				"its header, beyond the packet, a wrong checksum, none at all, which IPv6 forbids. A parser " +
				"that believes a length reads outside of the packet; one that ignores checksums takes what a " +
				"network has damaged. The review can read some and shows them as allowed; the gateway sends " +
				"only an eighth on, which tells the truth.",
			build: func(t *tape) {
				for _, lie := range []func([]byte){
					func(f []byte) { binary.BigEndian.PutUint16(f[18:], 0) }, func(f []byte) { binary.BigEndian.PutUint16(f[18:], 4) },
					func(f []byte) { binary.BigEndian.PutUint16(f[18:], 9000) }, func(f []byte) { binary.BigEndian.PutUint16(f[58:], 3) },
					func(f []byte) { binary.BigEndian.PutUint16(f[58:], 9000) }, func(f []byte) { f[60] ^= 0xff }, func(f []byte) { f[60], f[61] = 0, 0 },
				} {
					f := t.datagram6(5000)
					lie(f)
					t.send(f)
				}
				t.send(t.datagram6(5001))
			}},
		{Name: "icmp6-redirect", Odd: true,
			Title: "ICMPv6 redirects, forged errors and node queries sent by the guest.",
			Story: "The guest sends the gateway an ICMPv6 redirect, a packet-too-big that asks for packets of 68 " +
				"bytes, an unreachable, a parameter problem and a node information query. A redirect bends " +
				"routes, a forged size makes every connection slow, and a node query asks for the host's " +
				"names. No state changes for them: nothing is judged as a flow, nothing is told, and nothing " +
				"is sent out.",
			build: func(t *tape) {
				for _, kind := range []uint8{layers.ICMPv6TypeRedirect, layers.ICMPv6TypePacketTooBig, layers.ICMPv6TypeDestinationUnreachable, layers.ICMPv6TypeParameterProblem, 139} {
					body := append(binary.BigEndian.AppendUint32(nil, 68), t.datagram6(5001)[14:]...)
					t.icmp6(GatewayMAC, Guest6, Gateway6, kind, body)
				}
			}},
		{Name: "tcp-simultaneous-open", Odd: true, Policy: webOnly,
			Title: "Both ends send a SYN, and a SYN with ACK that answers nothing.",
			Story: "The guest opens a connection to an allowed address, and a SYN from there crosses its own, " +
				"which TCP permits; then it sends a SYN with ACK where nobody asked. Firewalls that keep " +
				"states by the order of flags have taken the second for an allowed connection from outside. " +
				"The gateway answers each SYN itself and knows no others: nothing comes in, and without a " +
				"name nothing is dialled.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				c := t.syn(good + ":443")
				c.packet(false, &layers.TCP{SYN: true}, nil)
				c.ack++
				c.packet(true, &layers.TCP{SYN: true, ACK: true}, nil)
				d := &conn{t: t, peer: netip.MustParseAddrPort(good + ":443"), port: t.nextPort(), seq: 1, ack: 1}
				d.packet(true, &layers.TCP{SYN: true, ACK: true}, nil)
			}},
		{Name: "tcp-zero-window", Timed: true, Policy: webOnly,
			Title: "A client that never opens its window.",
			Story: "After the hello to an allowed name the guest announces a window of zero, and says so again " +
				"for an hour whenever the server asks. Each such connection keeps data and a timer at whoever " +
				"waits, at the cost of a packet now and then. The connection is allowed and dialled; how many " +
				"a guest may hold is bounded, and so is what waits in each.",
			build: func(t *tape) {
				c := t.pinned().say(helloFor("good.example", "h2"))
				c.shut = true
				c.hear([]byte("x"))
				for range 20 {
					t.wait(3 * time.Minute)
					c.packet(false, &layers.TCP{ACK: true}, nil)
					c.packet(true, &layers.TCP{ACK: true}, nil)
				}
			}},
	}
	for i := range all {
		if all[i].Policy == "" {
			all[i].Policy = everything
		}
	}
	return all
}
