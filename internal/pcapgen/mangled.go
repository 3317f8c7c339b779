package pcapgen

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/miekg/dns"
)

// Mangled is a case of one connection whose client sends segments as no stack does: pieces of what it says and of
// something else for the same places, in any order and with any flags, before all of what it says once more. It stays open:
// where its end would be, only the other end knows.
//
// With harder it also mangles the handshake, resets the connection where that counts, and asks the proxy and the resolver.
func Mangled(r *rand.Rand, harder bool) Case {
	c := Case{Name: fmt.Sprintf("mangled-%d", r.Uint32()), Odd: true, Story: "Segments that no stack sends.", Policy: webOnly + inClear}
	ask := func(host, path string) []byte {
		return []byte("GET /" + path + "/a HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
	}
	tunnel := func(host string) []byte {
		return append([]byte("CONNECT "+host+":443 HTTP/1.1\r\n\r\n"), helloFor(host)...)
	}
	c.build = func(t *tape) {
		t.lookup("good.example", good)
		t.addZone("a.good.example. 300 IN A " + good)
		kinds := 4
		if harder {
			kinds = 6
		}
		switch r.IntN(kinds) {
		case 0, 1:
			mangle(r, t, harder, good+":443", helloFor("good.example"), helloFor("evil.example"))
		case 2, 3:
			a := ask("good.example", "repos")
			mangle(r, t, harder, good+":80", append(a, a...), append(ask("evil.example", "repos"), ask("good.example", "other")...))
		case 4:
			mangle(r, t, harder, Gateway4.String()+":3128", tunnel("good.example"), tunnel("evil.example"))
		default:
			mangle(r, t, harder, Gateway4.String()+":53", framed(packed(question("a.good.example", dns.TypeA, 1))), framed(packed(question("a.evil.example", dns.TypeA, 2))))
		}
	}
	return c
}

// Paused is a case of one connection to a port whose client pauses in the middle of what decides, and of one whose client
// says nothing before the pause.
func Paused(port int, pause time.Duration) Case {
	c := Case{Name: "paused", Story: "A pause in the middle of what decides.", Policy: webOnly + inClear}
	c.build = func(t *tape) {
		t.lookup("good.example", good)
		said := helloFor("good.example")
		if port == 80 {
			said = []byte("GET /repos/a HTTP/1.1\r\nHost: good.example\r\n\r\n")
		}
		half, silent := t.dial(fmt.Sprint(good, ":", port)), t.dial(fmt.Sprint(good, ":", port))
		half.say(said[:20])
		t.wait(pause)
		half.say(said[20:]).Close()
		silent.say(said).Close()
	}
	return c
}

// Impatient is a case of a client that does not wait for the answer to its CONNECT, whose beginning is given.
func Impatient(answer string) Case {
	c := Case{Name: "impatient", Story: "Bytes behind a CONNECT.", Policy: webOnly}
	c.build = func(t *tape) {
		t.lookup("good.example", good)
		conn := t.dial(Gateway4.String() + ":3128")
		conn.say([]byte("CONNECT good.example:443 HTTP/1.1\r\n\r\n")).say(helloFor("good.example"))
		conn.hear([]byte(answer)).Close()
	}
	return c
}

// Datagrams is a case of two datagrams from one socket, with a pause between them.
func Datagrams(pause time.Duration) Case {
	c := Case{Name: "datagrams", Story: "A pause between two datagrams.", Policy: everything}
	c.build = func(t *tape) {
		port := t.udp(good+":9999", []byte("first"))
		t.wait(pause)
		t.datagram(true, port, netip.MustParseAddrPort(good+":9999"), []byte("second"))
	}
	return c
}

func mangle(r *rand.Rand, t *tape, harder bool, dst string, a, b []byte) {
	c := t.syn(dst)
	c.packet(false, &layers.TCP{SYN: true, ACK: true}, nil)
	c.ack++
	if harder {
		for range r.IntN(8) - 5 {
			c.shaken(r, a)
		}
	}
	c.packet(true, &layers.TCP{ACK: true}, nil)
	for range 1 + r.IntN(8) {
		c.mangled(r, harder, a, b)
	}
	c.split(a, 1+r.IntN(len(a)))
}

// shaken sends a segment during the handshake.
func (c *conn) shaken(r *rand.Rand, a []byte) {
	seq, ack := c.seq, c.ack
	tcp := &layers.TCP{ACK: true}
	c.seq += []uint32{0, 0, 1, 100, 1 << 14, 1 << 20, 1<<32 - 1, 1<<32 - 100}[r.IntN(8)]
	switch r.IntN(5) {
	case 0:
		tcp.RST, tcp.ACK = true, r.IntN(2) == 0
	case 1:
		tcp.SYN, tcp.ACK = true, r.IntN(2) == 0
	case 2:
		c.ack += 1 << uint(r.IntN(32)) // of what was not sent
	case 3:
		tcp.ACK = false
	}
	c.packet(true, tcp, a[:len(a)*r.IntN(3)/8])
	c.seq, c.ack = seq, ack
}

// mangled sends one piece of a or b from its place on.
func (c *conn) mangled(r *rand.Rand, harder bool, a, b []byte) {
	from := a
	if r.IntN(2) == 0 {
		from = b
	}
	// Few places, so that pieces begin and end at the same.
	at := func() int { return (len(from) * r.IntN(9)) / 8 }
	begin, end := at(), at()
	if begin > end {
		begin, end = end, begin
	}
	tcp := &layers.TCP{ACK: true, PSH: true}
	seq, ack := c.seq, c.ack
	c.seq += uint32(begin)
	switch r.IntN(24) {
	case 0:
		tcp.SYN, c.seq = true, seq-1
	case 1:
		tcp.SYN, tcp.ACK, c.seq = true, false, seq-1
	case 2:
		tcp.ACK = false
	case 3:
		tcp.FIN = true
	case 4:
		tcp.RST = true
		c.seq += 1 << 20 // not where it would count
	case 5:
		tcp.URG, tcp.Urgent = true, 1
	case 6:
		c.ack += 1 << uint(r.IntN(31)) // of what was not sent
	case 7:
		c.ack -= 1 << uint(r.IntN(31))
	case 8:
		c.seq += 1 << uint(20+r.IntN(12)) // far away
	case 9:
		c.seq -= uint32(1 + r.IntN(64)) // in part old
	case 10:
		if harder && r.IntN(4) == 0 { // it may be where it counts
			tcp.RST, end = true, begin
		}
	}
	c.packet(true, tcp, from[begin:end])
	c.seq, c.ack = seq, ack
}
