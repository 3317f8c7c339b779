package egress

import "encoding/binary"

// maxEmbedded is the most IPv4 addresses that one IPv6 address is read to
// hold: the four positions of a local NAT64 prefix, and an ISATAP identifier.
const maxEmbedded = 6

// embedded collects the IPv4 addresses inside an IPv6 address, on the stack.
type embedded struct {
	addrs [maxEmbedded][4]byte
	n     int
}

func (e *embedded) add(n uint32) {
	binary.BigEndian.PutUint32(e.addrs[e.n][:], n)
	e.n++
}

// find takes every form apart that some translator or tunnel takes apart. Where
// a form is ambiguous, every reading counts: the caller keeps the worst.
func (e *embedded) find(b [16]byte) {
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	last := uint32(lo)
	switch {
	case hi == 0 && lo > 1 && lo>>32 <= 0xffff: // v4-compatible (RFC 4291, 2.5.5.1); v4-mapped is unmapped before
		e.add(last)
	case hi == 0 && lo>>48 == 0xffff: // SIIT (RFC 2765), ::ffff:0:a.b.c.d
		e.add(last)
	case hi == 0x0064ff9b_00000000: // NAT64 (RFC 6052), 64:ff9b::/96
		e.add(last)
	case hi>>16 == 0x0064ff9b_0001: // NAT64 with any prefix length of RFC 6052, 2.2, inside 64:ff9b:1::/48
		e.addNonZero(uint32(hi&0xffff)<<16 | uint32(lo>>40)&0xffff) // /48: bits 48..63, 72..87
		e.addNonZero(uint32(hi&0xff)<<24 | uint32(lo>>32)&0xffffff) // /56: bits 56..63, 72..95
		e.addNonZero(uint32(lo >> 24))                              // /64: bits 72..103
		e.addNonZero(last)                                          // /96
	case hi>>48 == 0x2002: // 6to4 (RFC 3056)
		e.add(uint32(hi >> 16))
	case hi>>32 == 0x20010000: // Teredo (RFC 4380): server, and client inverted
		e.add(uint32(hi))
		e.add(^last)
	}
	// ISATAP (RFC 5214, 6.1): any prefix, interface identifier 5efe:a.b.c.d with
	// the universal and group bits in any state.
	if id := uint32(lo>>32) &^ 0x03000000; id == 0x00005efe {
		e.add(last)
	}
}

// addNonZero adds an address unless it lies in 0.0.0.0/8: read with another
// prefix length than it was made with, the padding of a NAT64 address looks like
// one of those.
func (e *embedded) addNonZero(n uint32) {
	if n>>24 != 0 {
		e.add(n)
	}
}
