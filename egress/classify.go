package egress

import (
	"encoding/binary"
	"net/netip"
)

// Classify returns the class of a by the static tables alone. The host's own
// addresses and the gateway's are known to a Classifier only.
func Classify(a netip.Addr) Class { return classify(a, nil) }

// classify is Classify with a snapshot of the addresses that are known at run
// time; nil for none.
func classify(a netip.Addr, s *snapshot) Class {
	switch {
	case !a.IsValid():
		return ClassInvalid
	case a.Is4(), a.Is4In6():
		return classify4(a.As4(), s)
	}
	return classify6(a.As16(), s)
}

// classify4 judges an IPv4 address, which may stand inside an IPv6 one.
func classify4(b [4]byte, s *snapshot) Class {
	if isMetadata4(b) {
		return ClassMetadata
	}
	if c := s.class(netip.AddrFrom4(b)); c != ClassInvalid {
		return c
	}
	return range4(b)
}

// range4 is the IANA IPv4 special-purpose address registry with multicast
// (RFC 5771). Everything not named is public.
func range4(b [4]byte) Class {
	n := binary.BigEndian.Uint32(b[:])
	switch {
	case n>>24 == 0: // 0.0.0.0/8
		return ClassUnspecified
	case n>>24 == 127:
		return ClassLoopback
	case n>>24 == 10, n>>20 == 0xac1, n>>16 == 0xc0a8: // 10/8, 172.16/12, 192.168/16
		return ClassPrivate
	case n>>22 == 0x6440>>6: // 100.64/10
		return ClassShared
	case n>>16 == 0xa9fe: // 169.254/16
		return ClassLinkLocal
	case n>>8 == 0xc00000: // 192.0.0/24, whole: 192.0.0.9 is the nearest router's PCP server
		return ClassProtocol
	case n>>8 == 0xc00002, n>>8 == 0xc63364, n>>8 == 0xcb0071: // 192.0.2/24, 198.51.100/24, 203.0.113/24
		return ClassDocumentation
	case n>>8 == 0xc05863: // 192.88.99/24, 6to4 relays (RFC 7526)
		return ClassTranslated
	case n>>17 == 0xc612>>1: // 198.18/15
		return ClassBenchmark
	case n == 0xffffffff:
		return ClassBroadcast
	case n>>28 == 0xe:
		return ClassMulticast
	case n>>28 == 0xf:
		return ClassReserved
	}
	return ClassPublic
}

// classify6 judges an address that isn't v4-mapped: the worst of what the
// address itself is and what the IPv4 addresses in it are. Taking only the
// outer form would let 64:ff9b::a9fe:a9fe reach 169.254.169.254 through a
// translator; taking only the inner one would open the tunnel ranges.
func classify6(b [16]byte, s *snapshot) Class {
	if isMetadata6(b) {
		return ClassMetadata
	}
	if c := s.class(netip.AddrFrom16(b)); c != ClassInvalid {
		return c
	}
	outer := range6(b)
	var e embedded
	e.find(b)
	for _, inner := range e.addrs[:e.n] {
		outer = worse(outer, classify4(inner, s))
	}
	return outer
}

// range6 is the IANA IPv6 special-purpose address registry with multicast, the
// deprecated forms, and everything outside global unicast (2000::/3): overlay
// networks live in ranges that IANA keeps in reserve, such as 200::/7.
func range6(b [16]byte) Class {
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	switch {
	case hi == 0 && lo == 0:
		return ClassUnspecified
	case hi == 0 && lo == 1:
		return ClassLoopback
	case hi == 0x0064ff9b_00000000 && lo>>32 == 0: // 64:ff9b::/96: what the inner address is
		return ClassPublic
	case hi>>16 == 0x0064ff9b_0001: // 64:ff9b:1::/48 (RFC 8215)
		return ClassTranslated
	case hi == 0 && lo>>32 <= 0xffff || hi == 0 && lo>>48 == 0xffff: // v4-compatible, SIIT ::ffff:0:0:0/96
		return ClassTranslated
	case b[0] == 0xff:
		return ClassMulticast
	case hi>>54 == 0xfe80>>6:
		return ClassLinkLocal
	case hi>>54 == 0xfec0>>6, b[0]&0xfe == 0xfc: // fec0::/10, fc00::/7
		return ClassPrivate
	case b[0]>>5 != 1: // outside 2000::/3
		return ClassReserved
	case hi>>32 == 0x20010000, hi>>48 == 0x2002: // Teredo, 6to4
		return ClassTranslated
	case hi>>32 == 0x20010db8, hi>>44 == 0x3fff0: // 2001:db8::/32, 3fff::/20
		return ClassDocumentation
	case hi>>16 == 0x2001_0002_0000: // 2001:2::/48
		return ClassBenchmark
	case hi>>32 == 0x20010003, hi>>16 == 0x2001_0004_0112: // AMT, AS112: anycast services on the internet
		return ClassPublic
	case hi>>41 == 0x20010000>>9: // the rest of 2001::/23
		return ClassProtocol
	}
	return ClassPublic
}

// worse returns the class that is harder to open.
func worse(a, b Class) Class {
	if severity(b) > severity(a) {
		return b
	}
	return a
}

func severity(c Class) int {
	switch c {
	case ClassPublic:
		return 0
	case ClassTranslated:
		return 1 // says less than any class of the inner address
	case ClassPrivate, ClassShared, ClassLinkLocal, ClassMulticast, ClassBroadcast,
		ClassDocumentation, ClassBenchmark, ClassProtocol, ClassReserved:
		return 2
	case ClassMetadata:
		return 3
	case ClassUnspecified, ClassLoopback, ClassGateway, ClassHost:
		return 4
	case ClassInvalid:
		return 5
	}
	return 5
}
