package pcapgen

import (
	"bytes"
	"fmt"
)

// Bulk is a capture of a TLS download of n segments, for measurements.
func Bulk(n int) []byte {
	t := newTape("a download")
	t.lookup("good.example", good)
	c := t.dial(good + ":443").say(helloFor("good.example", "h2"))
	c.hear(bytes.Repeat([]byte{0xee}, n*maxSegment))
	c.Close()
	return t.bytes()
}

// Many is a capture of n short TLS connections to many addresses, each judged by its ClientHello, for
// measurements.
func Many(n int) []byte {
	t := newTape("many connections")
	for i := range 16 {
		t.lookup("good.example", fmt.Sprintf("93.184.215.%d", i+1))
	}
	for i := range n {
		t.port = uint16(1024 + i)
		t.dial(fmt.Sprintf("93.184.215.%d:443", i%16+1)).say(helloFor("good.example", "h2")).hear(serverSpeaks(300)).Close()
	}
	return t.bytes()
}

// Traffic is a capture of an agent at work, for measurements: n TLS connections to 16 hosts, eight at a
// time, each after its lookup. They download 14 kB, 70 kB, 280 kB or 1.4 MB, in bursts that take turns, in
// frames of 1,454 bytes of which every one is acknowledged.
func Traffic(n int) []byte {
	const atOnce, burst = 8, 10
	t := newTape("an agent at work")
	for begun := 0; begun < n; begun += atOnce {
		type download struct {
			*conn
			bursts int
		}
		var all []download
		for i := begun; i < min(begun+atOnce, n); i++ {
			addr := fmt.Sprintf("93.184.215.%d", i%16+1)
			t.lookup("good.example", addr)
			c := t.dial(addr + ":443").say(helloFor("good.example", "h2"))
			all = append(all, download{c, []int{1, 5, 20, 100}[i%4]})
		}
		for left := len(all); left > 0; {
			left = 0
			for i := range all {
				d := &all[i]
				if d.bursts == 0 {
					continue
				}
				d.hear(bytes.Repeat([]byte{0xee}, burst*maxSegment))
				if d.bursts--; d.bursts == 0 {
					d.Close()
				} else {
					left++
				}
			}
		}
	}
	return t.bytes()
}
