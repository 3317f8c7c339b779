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
			Title: "Half-open connections to two hundred addresses that no rule covers: each is reset " +
				"at once and holds nothing.",
			Story: "The guest sends two hundred SYNs to as many public addresses, none of them covered " +
				"by a rule. State for half-open connections is what such floods use up, and each dial " +
				"would make the host part of a scan. Every one is denied and reset before a handshake, " +
				"so that it holds nothing, and none is dialled.",
			build: func(t *tape) {
				for i := range 200 {
					t.syn(fmt.Sprintf("45.33.32.%d:443", i+1))
				}
			},
		},
		{
			Name: "half-open-flood", Policy: webOnly,
			Title: "A hundred connections to an allowed address whose clients never speak: bounded in " +
				"number, and nothing is dialled for them.",
			Story: "After one lookup the guest sends a hundred SYNs to the allowed address and never " +
				"completes a handshake. Each asks the gateway to keep a place for a client that may " +
				"still speak, and a dial for each would have the guest flood the server. Without a hello " +
				"the flows stay undecided, as the name is missing, and the server sees none of them.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				for range 100 {
					t.syn(good + ":443")
				}
			},
		},
		{
			Name: "rst-fin-storm", Policy: webOnly,
			Title: "Resets and ends of connections that were never opened.",
			Story: "The guest sends forty resets and ends, in turn, for connections to a public address " +
				"that were never opened. A stack that makes state for them or a filter that takes them " +
				"for the rest of a known flow could be worn down or led past its rules. The address was " +
				"never resolved and no rule covers it: the review denies all of them, and nothing is " +
				"dialled.",
			build: func(t *tape) {
				for i := range 40 {
					c := &conn{t: t, peer: netip.MustParseAddrPort(good + ":443"), port: t.nextPort()}
					c.packet(true, &layers.TCP{RST: i%2 == 0, FIN: i%2 == 1, ACK: i%2 == 1}, nil)
				}
			},
		},
		{
			Name: "tcp-odd-flags", Odd: true, Policy: webOnly,
			Title: "Segments with every odd set of flags: none, all, SYN with FIN, SYN with RST.",
			Story: "Four segments to a public address have no flags, all flags, SYN with FIN, and SYN " +
				"with RST. Scanners send these to slip past filters that know plain SYNs only, and to " +
				"tell stacks apart. The second looks like the answer to a connection from outside, but it is " +
				"the guest that sent it. The review denies all four as the guest's own; the gateway dials nothing.",
			build: func(t *tape) {
				for _, f := range []layers.TCP{{}, {FIN: true, SYN: true, RST: true, PSH: true, ACK: true, URG: true}, {SYN: true, FIN: true}, {SYN: true, RST: true}} {
					c := &conn{t: t, peer: netip.MustParseAddrPort(good + ":443"), port: t.nextPort()}
					c.packet(true, &f, nil)
				}
			},
		},
		{
			Name: "tcp-urgent", Odd: true, Policy: webOnly,
			Title: "Urgent data in the middle of a ClientHello: some stacks take a byte out of the " +
				"stream for it.",
			Story: "A ClientHello comes in a segment that is marked as urgent, with the pointer inside " +
				"it. Some stacks take the urgent byte out of the stream, so a filter and a server could " +
				"read two different names. The gateway ends TCP itself and reads good.example from the " +
				"bytes that it will relay; the connection is allowed and dialled.",
			build: func(t *tape) {
				c := t.pinned()
				h := helloFor("good.example")
				c.packet(true, &layers.TCP{ACK: true, PSH: true, URG: true, Urgent: 60}, h)
				c.seq += uint32(len(h))
				c.Close()
			},
		},
		{
			Name: "tcp-data-in-syn", Odd: true, Policy: webOnly,
			Title: "A ClientHello inside the SYN, before any handshake. It waits for the handshake like " +
				"any other byte.",
			Story: "The guest puts a whole ClientHello into its SYN and never completes the handshake. " +
				"If such data were acted on, a guest could have the gateway dial without keeping a " +
				"connection, or from a forged source. The bytes wait for a handshake that does not come: " +
				"nothing is dialled, and the review, which sees no more than the SYN, leaves the flow " +
				"undecided.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				c := &conn{t: t, peer: netip.MustParseAddrPort(good + ":443"), port: t.nextPort()}
				c.packet(true, &layers.TCP{SYN: true}, helloFor("good.example"))
			},
		},
		{
			Name: "udp-flood", Policy: webOnly,
			Title: "Three hundred UDP flows to as many places: each denied with an ICMP error, none of " +
				"them sent on.",
			Story: "The guest sends one-byte datagrams to three hundred public addresses, none of them " +
				"covered by a rule. UDP has no handshake, so each could take up a place in the gateway's " +
				"table and carry a byte to wherever the guest likes. All are denied, with ICMP errors so " +
				"that clients need not wait, and none is sent on.",
			build: func(t *tape) {
				for i := range 300 {
					t.udp(fmt.Sprintf("45.33.%d.%d:9", 32+i/250, i%250+1), []byte("x"))
				}
			},
		},
		{
			Name: "udp-allowed", Policy: "[[egress.allow]]\nname = \"time\"\ncidrs = [\"162.159.200.0/24\"]\nports = [123]\nprotocol = \"udp\"\n",
			Title: "NTP to an allowed range, answered; and to a server that no rule covers.",
			Story: "A time client asks an NTP server in the range that a udp rule opens, gets its " +
				"answer, and then asks a server outside of it. Clocks matter to certificates, so this " +
				"must work, but port 123 is also a handy way out for other data. The first flow is " +
				"allowed and seen upstream; the second is denied, since no rule covers it.",
			build: func(t *tape) {
				port := t.udp("162.159.200.1:123", append([]byte{0x23}, make([]byte, 47)...))
				t.datagram(false, port, netip.MustParseAddrPort("162.159.200.1:123"), append([]byte{0x24, 1}, make([]byte, 46)...))
				t.udp("45.33.32.156:123", append([]byte{0x23}, make([]byte, 47)...))
			},
		},
		{
			Name: "udp-amplifiers", Policy: everything + "\n[[egress.deny]]\nname = \"no amplifiers\"\nports = [11211, 1900]\ncidrs = [\"0.0.0.0/0\"]\n",
			Title: "Datagrams to the ports of known amplifiers, which a deny rule shuts for every " +
				"address.",
			Story: "The guest sends a memcached query and an SSDP search to a public address. Such " +
				"servers answer a few bytes with very many, which is used to flood others, and the " +
				"policy allows everything public except these two ports. Its deny rule goes before the " +
				"default: both datagrams are denied by it, and neither leaves.",
			build: func(t *tape) {
				t.udp("45.33.32.156:11211", []byte("\x00\x01\x00\x00\x00\x01\x00\x00stats\r\n"))
				t.udp("45.33.32.156:1900", []byte("M-SEARCH * HTTP/1.1\r\n\r\n"))
			},
		},
	}
}
