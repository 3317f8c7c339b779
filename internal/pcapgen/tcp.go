package pcapgen

import (
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// maxSegment is what the stacks of the captures put into one segment.
const maxSegment = 1400

// conn is a TCP connection of the guest's.
type conn struct {
	t        *tape
	peer     netip.AddrPort
	port     uint16
	seq, ack uint32
	shut     bool // the guest announces a window of zero
}

// dial shows a connection to dst that is established.
func (t *tape) dial(dst string) *conn {
	c := t.syn(dst)
	c.packet(false, &layers.TCP{SYN: true, ACK: true}, nil)
	c.ack++
	c.packet(true, &layers.TCP{ACK: true}, nil)
	return c
}

// syn sends a SYN that nothing answers.
func (t *tape) syn(dst string) *conn {
	c := &conn{t: t, peer: netip.MustParseAddrPort(dst), port: t.nextPort()}
	c.seq = uint32(c.port) * 1000
	c.ack = uint32(c.port) * 7000
	c.packet(true, &layers.TCP{SYN: true}, nil)
	c.seq++
	return c
}

// refused shows a connection to dst that is reset at once.
func (t *tape) refused(dst string) {
	c := t.syn(dst)
	c.packet(false, &layers.TCP{RST: true, ACK: true}, nil)
}

// packet sends one segment with the connection's numbers, without changing them. What flags leaves at
// zero is filled in.
func (c *conn) packet(up bool, tcp *layers.TCP, payload []byte) {
	eth, ip := c.t.ip(up, c.peer.Addr(), layers.IPProtocolTCP)
	tcp.Window = 64240
	if c.shut && up {
		tcp.Window = 0
	}
	tcp.SrcPort, tcp.DstPort = layers.TCPPort(c.port), layers.TCPPort(c.peer.Port())
	tcp.Seq = c.seq
	if tcp.ACK {
		tcp.Ack = c.ack
	}
	if !up {
		tcp.SrcPort, tcp.DstPort = tcp.DstPort, tcp.SrcPort
		tcp.Seq = c.ack
		if tcp.ACK {
			tcp.Ack = c.seq
		}
	}
	if tcp.SYN {
		tcp.Options = append(tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: be16(1460)})
	}
	must(tcp.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer)))
	c.t.put(up, pack(eth, ip, tcp, gopacket.Payload(payload)))
}

// say sends bytes, which the other end acknowledges.
func (c *conn) say(b []byte) *conn { return c.split(b, maxSegment) }

// split is say in segments of n bytes.
func (c *conn) split(b []byte, n int) *conn {
	for len(b) > 0 {
		part := b[:min(n, len(b))]
		b = b[len(part):]
		c.packet(true, &layers.TCP{ACK: true, PSH: true}, part)
		c.seq += uint32(len(part))
		c.packet(false, &layers.TCP{ACK: true}, nil)
	}
	return c
}

// at sends bytes at an offset from the connection's place, without moving it: overlaps, holes.
func (c *conn) at(offset int, b []byte) *conn {
	old := c.seq
	c.seq += uint32(offset)
	c.packet(true, &layers.TCP{ACK: true, PSH: true}, b)
	c.seq = old
	return c
}

// hear receives bytes.
func (c *conn) hear(b []byte) *conn {
	for len(b) > 0 {
		part := b[:min(maxSegment, len(b))]
		b = b[len(part):]
		c.packet(false, &layers.TCP{ACK: true, PSH: true}, part)
		c.ack += uint32(len(part))
		c.packet(true, &layers.TCP{ACK: true}, nil)
	}
	return c
}

// Close ends the connection from the guest's side, in order.
func (c *conn) Close() {
	c.packet(true, &layers.TCP{FIN: true, ACK: true}, nil)
	c.seq++
	c.packet(false, &layers.TCP{FIN: true, ACK: true}, nil)
	c.ack++
	c.packet(true, &layers.TCP{ACK: true}, nil)
}
