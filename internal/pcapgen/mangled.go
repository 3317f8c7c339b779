package pcapgen

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gopacket/gopacket/layers"
)

// Mangled is a case of one connection whose client sends segments as no stack does: pieces of what it says and of
// something else for the same places, in any order and with any flags, before all of what it says once more. It stays open:
// where its end would be, only the other end knows.
func Mangled(r *rand.Rand) Case {
	c := Case{Name: fmt.Sprintf("mangled-%d", r.Uint32()), Odd: true, Story: "Segments that no stack sends.", Policy: webOnly + inClear}
	c.build = func(t *Tape) {
		t.Lookup("good.example", good)
		if r.IntN(2) == 0 {
			mangle(r, t, good+":443", helloFor("good.example"), helloFor("evil.example"))
			return
		}
		ask := func(host, path string) []byte {
			return []byte("GET /" + path + "/a HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
		}
		a := ask("good.example", "repos")
		mangle(r, t, good+":80", append(a, a...), append(ask("evil.example", "repos"), ask("good.example", "other")...))
	}
	return c
}

// Paused is a case of one connection to a port whose client pauses in the middle of what decides, and of one whose client
// says nothing before the pause.
func Paused(port int, pause time.Duration) Case {
	c := Case{Name: "paused", Story: "A pause in the middle of what decides.", Policy: webOnly + inClear}
	c.build = func(t *Tape) {
		t.Lookup("good.example", good)
		said := helloFor("good.example")
		if port == 80 {
			said = []byte("GET /repos/a HTTP/1.1\r\nHost: good.example\r\n\r\n")
		}
		half, silent := t.Dial(fmt.Sprint(good, ":", port)), t.Dial(fmt.Sprint(good, ":", port))
		half.Say(said[:20])
		t.Wait(pause)
		half.Say(said[20:]).Close()
		silent.Say(said).Close()
	}
	return c
}

func mangle(r *rand.Rand, t *Tape, dst string, a, b []byte) {
	c := t.Dial(dst)
	for range 1 + r.IntN(8) {
		c.mangled(r, a, b)
	}
	c.Split(a, 1+r.IntN(len(a)))
}

// mangled sends one piece of a or b from its place on.
func (c *Conn) mangled(r *rand.Rand, a, b []byte) {
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
	}
	c.packet(true, tcp, from[begin:end])
	c.seq, c.ack = seq, ack
}
