package review_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/review"
)

// TestI4_OpenersAreTakenForTheGuest: in a capture of another link, without directions, who begins the first flow is the guest,
// whose frames the guard judges. What the other side sends passes.
func TestI4_OpenersAreTakenForTheGuest(t *testing.T) {
	t.Parallel()
	guest, router := []byte{2, 0, 0, 0, 0, 9}, []byte{2, 0, 0, 0, 0, 1}
	foreign := func(frame, from, to []byte) []byte {
		f := bytes.Clone(frame)
		copy(f, to)
		copy(f[6:], from)
		return f
	}
	up := func(frame []byte) []byte { return foreign(frame, guest, router) }
	down := func(frame []byte) []byte { return foreign(answered(frame), router, guest) }
	udp := func(from, to uint16) []byte {
		return append(packet(17, 8), byte(from>>8), byte(from), byte(to>>8), byte(to), 0, 8, 0, 0)
	}
	ping := func(kind byte) []byte { return append(packet(1, 8), kind, 0, 0, 0, 0, 1, 0, 1) }
	syn := segmentTo(9, 40000, capture.SYN, 999, "")
	group := foreign(udp(40000, 53), router, []byte{1, 0, 0x5e, 0, 0, 1})
	for name, c := range map[string]struct {
		begin   [][]byte
		guarded string
	}{
		"a SYN":                            {[][]byte{up(syn)}, "map[ip_options:1]"},
		"an answered SYN":                  {[][]byte{down(segmentTo(9, 40000, capture.SYN|capture.ACK, 0, ""))}, "map[]"},
		"an answer, then a SYN":            {[][]byte{down(segmentTo(9, 40000, capture.ACK, 0, "x")), up(syn)}, "map[ip_options:1]"},
		"a datagram to a low port":         {[][]byte{up(udp(40000, 9))}, "map[ip_options:1]"},
		"a datagram from a low port":       {[][]byte{up(udp(9, 40000))}, "map[]"},
		"a datagram between the same port": {[][]byte{up(udp(9, 9))}, "map[]"},
		"a ping":                           {[][]byte{up(ping(8))}, "map[ip_options:1]"},
		"an answer to a ping":              {[][]byte{up(ping(0))}, "map[]"},
		"one to a group, then a SYN":       {[][]byte{group, up(syn)}, "map[ip_options:1]"},
		"two that begin":                   {[][]byte{up(syn), down(syn)}, "map[ip_options:1]"},
		"nothing":                          {nil, "map[]"},
	} {
		l := newLink()
		for _, f := range append(c.begin, up(withOption(segmentTo(9, 40000, capture.ACK, 1000, "x"))), down(withOption(segmentTo(9, 40000, capture.ACK, 1, "x"))), make([]byte, 8)) {
			l.w.Packet(capture.FromGuest, f, "")
		}
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		r := read(t, classic(t, l.out.Bytes(), 1<<16), review.Options{Policy: policy(t, "")})
		if got := fmt.Sprint(r.Guarded); got != c.guarded {
			t.Errorf("%s: would throw away %s, want %s", name, got, c.guarded)
		}
	}
}
