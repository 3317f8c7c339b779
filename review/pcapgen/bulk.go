package pcapgen

import (
	"bytes"
	"fmt"
)

// Bulk is a capture of a TLS download of n segments, for measurements.
func Bulk(n int) []byte {
	t := newTape("a download")
	t.Lookup("good.example", good)
	c := t.Dial(good + ":443").Say(helloFor("good.example", "h2"))
	c.Hear(bytes.Repeat([]byte{0xee}, n*maxSegment))
	c.Close()
	return t.bytes()
}

// Many is a capture of n short TLS connections to many addresses, each judged by its ClientHello, for
// measurements.
func Many(n int) []byte {
	t := newTape("many connections")
	for i := range 16 {
		t.Lookup("good.example", fmt.Sprintf("93.184.215.%d", i+1))
	}
	for i := range n {
		t.port = uint16(1024 + i)
		t.Dial(fmt.Sprintf("93.184.215.%d:443", i%16+1)).Say(helloFor("good.example", "h2")).Hear(serverSpeaks(300)).Close()
	}
	return t.bytes()
}
