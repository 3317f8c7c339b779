package frameguard

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
)

// summed puts the checksum of a segment at its offset: in full, or over the pseudo header alone as where the card adds
// the rest.
func summed(src, dst netip.Addr, proto byte, p []byte, at int, partial bool) []byte {
	p = with(p, at, 0, 0)
	sum := checksum.Checksum(append(src.AsSlice(), dst.AsSlice()...), checksum.Combine(uint16(proto), uint16(len(p))))
	if !partial {
		sum = ^checksum.Checksum(p, sum)
	}
	binary.BigEndian.PutUint16(p[at:], sum)
	return p
}

// TestI3_SegmentsFitTheirPacket: lengths that a segment states of itself are held to the bytes that it has, and
// what leaves its checksum to the card is let in only on request.
func TestI3_SegmentsFitTheirPacket(t *testing.T) {
	t.Parallel()
	strict, offload := testGuard(t, nil), testGuard(t, func(c *Config) { c.PartialChecksums = true })
	tcp := func(offset byte, n int, partial bool) []byte {
		return summed(g4, routable4, protoTCP, with(make([]byte, n), 12, offset<<4), 16, partial)
	}
	udp := func(length uint16, n int, partial bool) []byte {
		p := binary.BigEndian.AppendUint16([]byte{0, 1, 0, 9}, length)
		return summed(g4, routable4, protoUDP, append(p, make([]byte, n-6)...), 6, partial)
	}
	for name, tc := range map[string]struct {
		proto           byte
		segment         []byte
		strict, offload Verdict
	}{
		"tcp":                             {protoTCP, tcp(5, 20, false), Pass, Pass},
		"tcp of 19 bytes":                 {protoTCP, tcp(5, 19, false), DropHeader, DropHeader},
		"tcp whose options fill it":       {protoTCP, tcp(6, 24, false), Pass, Pass},
		"tcp whose options go beyond it":  {protoTCP, tcp(6, 23, false), DropHeader, DropHeader},
		"tcp whose data begin before it":  {protoTCP, tcp(4, 24, false), DropHeader, DropHeader},
		"tcp left to the card":            {protoTCP, tcp(5, 20, true), DropPartial, Pass},
		"tcp of a wrong sum":              {protoTCP, with(tcp(5, 24, false), 23, 1), DropChecksum, DropChecksum},
		"udp":                             {protoUDP, udp(8, 8, false), Pass, Pass},
		"udp of 7 bytes":                  {protoUDP, make([]byte, 7), DropHeader, DropHeader},
		"udp that ends before the packet": {protoUDP, append(udp(8, 8, false), 9, 9), Pass, Pass},
		"udp that goes beyond the packet": {protoUDP, udp(10, 9, false), DropHeader, DropHeader},
		"udp under its own header":        {protoUDP, udp(7, 8, false), DropHeader, DropHeader},
		"udp of no length":                {protoUDP, udp(0, 8, false), DropHeader, DropHeader},
		"udp left to the card":            {protoUDP, udp(9, 9, true), DropPartial, Pass},
	} {
		f := frame(gwMAC, guestMAC, etherTypeIPv4, v4(g4, routable4, tc.proto, tc.segment))
		if got := strict.Check(f); got != tc.strict {
			t.Errorf("%s: %q, want %q", name, got.Reason(), tc.strict.Reason())
		}
		if got := offload.Check(f); got != tc.offload {
			t.Errorf("%s, with --offload: %q, want %q", name, got.Reason(), tc.offload.Reason())
		}
	}
}

// TestI3_LongestFramePasses, and the one that is a byte longer is dropped.
func TestI3_LongestFramePasses(t *testing.T) {
	t.Parallel()
	g := testGuard(t, nil)
	f := append(frame(gwMAC, guestMAC, etherTypeIPv4, v4(g4, routable4, protoTCP, tcp20)), make([]byte, MaxFrame)...)
	if got := g.check(f[:MaxFrame]); got != Pass {
		t.Errorf("%d bytes: %q", MaxFrame, got.Reason())
	}
	if got := g.check(f[:MaxFrame+1]); got != DropLong {
		t.Errorf("%d bytes: %q", MaxFrame+1, got.Reason())
	}
}
