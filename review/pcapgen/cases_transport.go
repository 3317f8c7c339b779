package pcapgen

import (
	"fmt"
	"net/netip"

	"github.com/gopacket/gopacket/layers"
)

var gatewayDNS = netip.MustParseAddrPort(resolver)

// transportCases are what TCP and UDP themselves can be used for.
func transportCases() []Case {
	return []Case{
		{
			Name: "syn-flood", Policy: webOnly,
			Story: "Two hundred half-open connections to an address that no rule covers: each is reset at once and holds nothing.",
			build: func(t *Tape) {
				for i := range 200 {
					t.SYN(fmt.Sprintf("45.33.32.%d:443", i+1))
				}
			},
		},
		{
			Name: "half-open-flood", Policy: webOnly,
			Story: "A hundred connections to an allowed address whose clients never speak: bounded in number, and nothing is dialled for them.",
			build: func(t *Tape) {
				t.Lookup("good.example", good)
				for range 100 {
					t.SYN(good + ":443")
				}
			},
		},
		{
			Name: "rst-fin-storm", Policy: webOnly,
			Story: "Resets and ends of connections that were never opened.",
			build: func(t *Tape) {
				for i := range 40 {
					c := &Conn{t: t, peer: netip.MustParseAddrPort(good + ":443"), port: t.nextPort()}
					c.packet(true, &layers.TCP{RST: i%2 == 0, FIN: i%2 == 1, ACK: i%2 == 1}, nil)
				}
			},
		},
		{
			Name: "tcp-odd-flags", Odd: true, Policy: webOnly,
			Story: "Segments with every odd set of flags: none, all, SYN with FIN, SYN with RST.",
			build: func(t *Tape) {
				for _, f := range []layers.TCP{{}, {FIN: true, SYN: true, RST: true, PSH: true, ACK: true, URG: true}, {SYN: true, FIN: true}, {SYN: true, RST: true}} {
					c := &Conn{t: t, peer: netip.MustParseAddrPort(good + ":443"), port: t.nextPort()}
					c.packet(true, &f, nil)
				}
			},
		},
		{
			Name: "tcp-urgent", Odd: true, Policy: webOnly,
			Story: "Urgent data in the middle of a ClientHello: some stacks take a byte out of the stream for it.",
			build: func(t *Tape) {
				c := t.pinned()
				h := helloFor("good.example")
				c.packet(true, &layers.TCP{ACK: true, PSH: true, URG: true, Urgent: 60}, h)
				c.seq += uint32(len(h))
				c.Close()
			},
		},
		{
			Name: "tcp-data-in-syn", Odd: true, Policy: webOnly,
			Story: "A ClientHello inside the SYN, before any handshake. It waits for the handshake like any other byte.",
			build: func(t *Tape) {
				t.Lookup("good.example", good)
				c := &Conn{t: t, peer: netip.MustParseAddrPort(good + ":443"), port: t.nextPort()}
				c.packet(true, &layers.TCP{SYN: true}, helloFor("good.example"))
			},
		},
		{
			Name: "udp-flood", Policy: webOnly,
			Story: "Three hundred UDP flows to as many places: each denied with an ICMP error, none of them sent on.",
			build: func(t *Tape) {
				for i := range 300 {
					t.UDP(fmt.Sprintf("45.33.%d.%d:9", 32+i/250, i%250+1), []byte("x"))
				}
			},
		},
		{
			Name: "udp-allowed", Policy: "[[egress.allow]]\nname = \"time\"\ncidrs = [\"162.159.200.0/24\"]\nports = [123]\nprotocol = \"udp\"\n",
			Story: "NTP to an allowed range, answered; and to a server that no rule covers.",
			build: func(t *Tape) {
				port := t.UDP("162.159.200.1:123", append([]byte{0x23}, make([]byte, 47)...))
				t.datagram(false, port, netip.MustParseAddrPort("162.159.200.1:123"), append([]byte{0x24, 1}, make([]byte, 46)...))
				t.UDP("45.33.32.156:123", append([]byte{0x23}, make([]byte, 47)...))
			},
		},
		{
			Name: "udp-amplifiers", Policy: everything + "\n[[egress.deny]]\nname = \"no amplifiers\"\nports = [11211, 1900]\ncidrs = [\"0.0.0.0/0\"]\n",
			Story: "Datagrams to the ports of known amplifiers, which a deny rule shuts for every address.",
			build: func(t *Tape) {
				t.UDP("45.33.32.156:11211", []byte("\x00\x01\x00\x00\x00\x01\x00\x00stats\r\n"))
				t.UDP("45.33.32.156:1900", []byte("M-SEARCH * HTTP/1.1\r\n\r\n"))
			},
		},
	}
}
