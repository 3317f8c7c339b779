package capture

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func serialize(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, ls...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestDecode(t *testing.T) {
	t.Parallel()
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 2}
	ether4 := &layers.Ethernet{SrcMAC: mac, DstMAC: mac, EthernetType: layers.EthernetTypeIPv4}
	ether6 := &layers.Ethernet{SrcMAC: mac, DstMAC: mac, EthernetType: layers.EthernetTypeIPv6}
	src4, dst4 := net.IP{10, 0, 0, 2}, net.IP{93, 184, 215, 14}
	src6, dst6 := net.ParseIP("fd00::2"), net.ParseIP("2606:2800::1")
	ip4 := func(p layers.IPProtocol) *layers.IPv4 {
		return &layers.IPv4{Version: 4, TTL: 64, SrcIP: src4, DstIP: dst4, Protocol: p}
	}
	ip6 := func(p layers.IPProtocol) *layers.IPv6 {
		return &layers.IPv6{Version: 6, HopLimit: 64, SrcIP: src6, DstIP: dst6, NextHeader: p}
	}
	tcp := &layers.TCP{SrcPort: 4000, DstPort: 443, Seq: 7, SYN: true, Options: []layers.TCPOption{{OptionType: 2, OptionLength: 4, OptionData: []byte{5, 0xb4}}}}
	udp := &layers.UDP{SrcPort: 4000, DstPort: 53}
	body := gopacket.Payload("hello")
	quoted := serialize(t, &layers.IPv4{Version: 4, TTL: 64, SrcIP: src4, DstIP: dst4, Protocol: 17}, udp, body)
	fragment := ip4(layers.IPProtocolUDP)
	fragment.FragOffset = 5
	first := ip4(layers.IPProtocolUDP)
	first.Flags = layers.IPv4MoreFragments

	for name, tt := range map[string]struct {
		frame   []byte
		ok      bool
		want    Transport
		ports   [2]uint16
		payload string
		check   func(Headers) bool
	}{
		"tcp":             {serialize(t, ether4, ip4(layers.IPProtocolTCP), tcp, body), true, TransportTCP, [2]uint16{4000, 443}, "hello", func(h Headers) bool { return h.Flags == SYN && h.Seq == 7 }},
		"tcp6":            {serialize(t, ether6, ip6(layers.IPProtocolTCP), tcp, body), true, TransportTCP, [2]uint16{4000, 443}, "hello", nil},
		"udp":             {serialize(t, ether4, ip4(layers.IPProtocolUDP), udp, body), true, TransportUDP, [2]uint16{4000, 53}, "hello", nil},
		"padded":          {append(serialize(t, ether4, ip4(layers.IPProtocolUDP), udp, body), 0, 0, 0, 0, 0, 0, 0), true, TransportUDP, [2]uint16{4000, 53}, "hello", nil},
		"ping":            {serialize(t, ether4, ip4(layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}, body), true, TransportPing, [2]uint16{}, "hello", func(h Headers) bool { return h.Request }},
		"reply":           {serialize(t, ether4, ip4(layers.IPProtocolICMPv4), &layers.ICMPv4{}, body), true, TransportPing, [2]uint16{}, "hello", func(h Headers) bool { return !h.Request }},
		"refusal":         {serialize(t, ether4, &layers.IPv4{Version: 4, SrcIP: dst4, DstIP: src4, Protocol: 1}, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 13)}, gopacket.Payload(quoted)), true, TransportUDP, [2]uint16{4000, 53}, "hello", func(h Headers) bool { return h.Refusal && h.Dst.Addr() == netip.MustParseAddr("93.184.215.14") }},
		"arp":             {serialize(t, &layers.Ethernet{SrcMAC: mac, DstMAC: mac, EthernetType: layers.EthernetTypeARP}, gopacket.Payload(make([]byte, 28))), false, 0, [2]uint16{}, "", nil},
		"gre":             {serialize(t, ether4, ip4(47), gopacket.Payload(make([]byte, 28))), false, 0, [2]uint16{}, "", nil},
		"fragment":        {serialize(t, ether4, fragment, udp, body), false, 0, [2]uint16{}, "", func(h Headers) bool { return h.Fragment }},
		"first fragment":  {serialize(t, ether4, first, udp, body), true, TransportUDP, [2]uint16{4000, 53}, "hello", func(h Headers) bool { return h.Fragment }},
		"short":           {make([]byte, 13), false, 0, [2]uint16{}, "", nil},
		"cut ip":          {serialize(t, ether4, ip4(layers.IPProtocolTCP), tcp)[:30], false, 0, [2]uint16{}, "", nil},
		"cut tcp":         {serialize(t, ether4, ip4(layers.IPProtocolTCP), tcp)[:50], false, TransportTCP, [2]uint16{4000, 443}, "", nil},
		"cut tcp options": {serialize(t, ether4, ip4(layers.IPProtocolTCP), tcp)[:55], false, TransportTCP, [2]uint16{4000, 443}, "", nil},
	} {
		h, ok := Decode(tt.frame)
		if ok != tt.ok || h.Transport != tt.want || h.Src.Port() != tt.ports[0] || h.Dst.Port() != tt.ports[1] || string(h.Payload) != tt.payload {
			t.Errorf("%s: got %+v, %v", name, h, ok)
		}
		if ContinuesTCP(tt.frame) {
			t.Errorf("%s: is taken for a later segment of a connection", name)
		}
		if tt.check != nil && !tt.check(h) {
			t.Errorf("%s: got %+v", name, h)
		}
	}
}

func TestContinuesTCPTakesPlainDataOnly(t *testing.T) {
	t.Parallel()
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, SrcIP: net.IP{10, 0, 0, 2}, DstIP: net.IP{10, 0, 0, 1}, Protocol: 6}
	if f := serialize(t, eth, ip, &layers.TCP{ACK: true}, gopacket.Payload("data")); !ContinuesTCP(f) || ContinuesTCP(f[:40]) {
		t.Error("a data segment is not taken for one, or a cut one is")
	}
	if ContinuesTCP(serialize(t, eth, ip, &layers.TCP{SYN: true, ACK: true})) {
		t.Error("a SYN-ACK is taken for a later segment")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(serialize(f, &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4},
		&layers.IPv4{Version: 4, SrcIP: net.IP{10, 0, 0, 2}, DstIP: net.IP{10, 0, 0, 1}, Protocol: 6}, &layers.TCP{SrcPort: 1, DstPort: 2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if ContinuesTCP(b) {
			if h, ok := Decode(b); ok && !h.Fragment && (h.Transport != TransportTCP || h.Flags&(SYN|ACK) != ACK) {
				t.Fatalf("%x: %+v", b, h)
			}
		}
		if h, ok := Decode(b); ok && (h.Transport == TransportNone || !h.Src.IsValid() || !h.Dst.IsValid()) {
			t.Fatalf("%x: %+v", b, h)
		}
	})
}
