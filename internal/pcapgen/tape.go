package pcapgen

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// The link's addresses, as the gateway leases them.
var (
	GuestMAC   = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x02}
	GatewayMAC = net.HardwareAddr{0x02, 0x6d, 0x73, 0x62, 0x00, 0x01}
	Guest4     = netip.MustParseAddr("192.168.127.2")
	Gateway4   = netip.MustParseAddr("192.168.127.1")
	Guest6     = netip.MustParseAddr("fd6d:7362::2")
	Gateway6   = netip.MustParseAddr("fd6d:7362::1")
)

// epoch is when every capture begins.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// step is the time between two frames.
const step = 700 * time.Microsecond

// tape is a capture in the making.
type tape struct {
	w    *pcapgo.NgWriter
	out  *bytes.Buffer
	at   time.Time
	port uint16
	id   uint16
	zone map[string][]string
}

func newTape(comment string) *tape {
	t := &tape{out: new(bytes.Buffer), at: epoch, port: 40000, zone: map[string][]string{}}
	w, err := pcapgo.NewNgWriterInterface(t.out,
		pcapgo.NgInterface{Name: "eth0", LinkType: layers.LinkTypeEthernet, TimestampResolution: 9},
		pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "msb pcapgen", Comment: comment}})
	must(err)
	t.w = w
	return t
}

// must ends a generator that can't go on; its input is this package's own.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// wait lets time pass.
func (t *tape) wait(d time.Duration) { t.at = t.at.Add(d) }

func (t *tape) frame(direction pcapgo.NgEpbFlag, b []byte) {
	t.at = t.at.Add(step)
	must(t.w.WritePacketWithOptions(
		gopacket.CaptureInfo{Timestamp: t.at, CaptureLength: len(b), Length: len(b)}, b,
		pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: direction}}))
}

// send puts a frame of the guest's on the tape, byte by byte as it is.
func (t *tape) send(b []byte) { t.frame(pcapgo.NgEpbFlagDirectionOutbound, b) }

// receive puts a frame to the guest on the tape.
func (t *tape) receive(b []byte) { t.frame(pcapgo.NgEpbFlagDirectionInbound, b) }

func (t *tape) bytes() []byte {
	must(t.w.Flush())
	return t.out.Bytes()
}

// pack serialises layers with lengths and checksums that are right.
func pack(ls ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...))
	return bytes.Clone(buf.Bytes())
}

// ether is the head of a frame of the guest's, or of the gateway's if up is false.
func ether(up bool, kind layers.EthernetType) *layers.Ethernet {
	if up {
		return &layers.Ethernet{SrcMAC: GuestMAC, DstMAC: GatewayMAC, EthernetType: kind}
	}
	return &layers.Ethernet{SrcMAC: GatewayMAC, DstMAC: GuestMAC, EthernetType: kind}
}

// ip is the IP head of a packet between the guest and peer.
func (t *tape) ip(up bool, peer netip.Addr, proto layers.IPProtocol) (eth *layers.Ethernet, ip gopacket.SerializableLayer) {
	t.id++
	src, dst := guestOf(peer), peer
	if !up {
		src, dst = dst, src
	}
	if peer.Is4() {
		return ether(up, layers.EthernetTypeIPv4), &layers.IPv4{
			Version: 4, TTL: 64, Id: t.id, Protocol: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice(),
		}
	}
	return ether(up, layers.EthernetTypeIPv6), &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice(),
	}
}

func guestOf(peer netip.Addr) netip.Addr {
	if peer.Is4() {
		return Guest4
	}
	return Guest6
}

func (t *tape) nextPort() uint16 {
	t.port++
	return t.port
}

// udp sends a datagram from a new port and returns the port.
func (t *tape) udp(dst string, payload []byte) uint16 {
	port := t.nextPort()
	t.datagram(true, port, netip.MustParseAddrPort(dst), payload)
	return port
}

func (t *tape) datagram(up bool, port uint16, peer netip.AddrPort, payload []byte) {
	eth, ip := t.ip(up, peer.Addr(), layers.IPProtocolUDP)
	udp := &layers.UDP{SrcPort: layers.UDPPort(port), DstPort: layers.UDPPort(peer.Port())}
	if !up {
		udp.SrcPort, udp.DstPort = udp.DstPort, udp.SrcPort
	}
	must(udp.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer)))
	t.put(up, pack(eth, ip, udp, gopacket.Payload(payload)))
}

func (t *tape) put(up bool, b []byte) {
	if up {
		t.send(b)
	} else {
		t.receive(b)
	}
}

// ping sends an echo request and, if answered, shows the reply.
func (t *tape) ping(dst string, answered bool) {
	peer := netip.MustParseAddr(dst)
	for _, up := range []bool{true, false} {
		if !up && !answered {
			return
		}
		if peer.Is4() {
			kind := uint8(layers.ICMPv4TypeEchoRequest)
			if !up {
				kind = layers.ICMPv4TypeEchoReply
			}
			eth, ip := t.ip(up, peer, layers.IPProtocolICMPv4)
			t.put(up, pack(eth, ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, 0), Id: 7, Seq: 1}, gopacket.Payload("abcdefgh")))
			continue
		}
		kind := uint8(layers.ICMPv6TypeEchoRequest)
		if !up {
			kind = layers.ICMPv6TypeEchoReply
		}
		eth, ip := t.ip(up, peer, layers.IPProtocolICMPv6)
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}
		must(icmp.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer)))
		t.put(up, pack(eth, ip, icmp, &layers.ICMPv6Echo{Identifier: 7, SeqNumber: 1}, gopacket.Payload("abcdefgh")))
	}
}

// be16 is v in network order.
func be16(v int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(v)) }
