package dnsguard

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/msb-project/msb/hostname"
)

// Zones of reverse names.
const (
	reverseV4 = ".in-addr.arpa"
	reverseV6 = ".ip6.arpa"
)

// reverseAddr reads the address out of a reverse name, "4.3.2.1.in-addr.arpa",
// and false if name isn't a whole one.
func reverseAddr(name hostname.Name) (netip.Addr, bool) {
	if digits, ok := strings.CutSuffix(name.String(), reverseV4); ok {
		return reverseAddr4(digits)
	}
	if digits, ok := strings.CutSuffix(name.String(), reverseV6); ok {
		return reverseAddr6(digits)
	}
	return netip.Addr{}, false
}

func reverseAddr4(digits string) (netip.Addr, bool) {
	parts := strings.Split(digits, ".")
	var b [4]byte
	if len(parts) != len(b) {
		return netip.Addr{}, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 8)
		if err != nil || strconv.FormatUint(n, 10) != part {
			return netip.Addr{}, false
		}
		b[len(b)-1-i] = byte(n)
	}
	return netip.AddrFrom4(b), true
}

func reverseAddr6(digits string) (netip.Addr, bool) {
	var b [16]byte
	if len(digits) != 4*len(b)-1 {
		return netip.Addr{}, false
	}
	for i := range 2 * len(b) {
		n, err := strconv.ParseUint(digits[2*i:2*i+1], 16, 4)
		if err != nil || 2*i+1 < len(digits) && digits[2*i+1] != '.' {
			return netip.Addr{}, false
		}
		b[len(b)-1-i/2] |= byte(n) << (4 * (i % 2))
	}
	return netip.AddrFrom16(b), true
}
