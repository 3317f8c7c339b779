package policies

import (
	"net/netip"
	"slices"
)

// specialRanges are the special-purpose ranges that a rule over addresses must
// not touch without private = true. It is what validation of a file needs, and
// deliberately smaller than the classifier of package egress, which also
// unwraps embedded IPv4 addresses and knows the host's own, and which alone
// decides at dial time.
//
// Source: the IANA IPv4 and IPv6 Special-Purpose Address Registries, less the
// blocks that are globally reachable.
var specialRanges = mustPrefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
	"172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/4", "240.0.0.0/4",
	"::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48",
	"100::/64", "100:0:0:1::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	"5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
	// What IANA keeps in reserve outside global unicast, 2000::/3.
	"::/3", "4000::/2", "8000::/1",
)

// ownRanges are the host itself, which no rule over addresses opens.
var ownRanges = mustPrefixes("0.0.0.0/8", "127.0.0.0/8", "::/128", "::1/128")

// metadataAddresses are the instance metadata services of clouds, whatever
// range they lie in. A rule reaches one only by naming it alone.
var metadataAddresses = mustAddrs(
	"169.254.169.254", "169.254.169.253", "169.254.169.123", "169.254.170.2", "169.254.170.23",
	"169.254.0.23", "169.254.42.42", "100.100.100.200", "100.96.0.96", "168.63.129.16",
	"192.0.0.192", "192.80.8.124",
	"fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::123", "fd00:ec2::23", "fd20:ce::254",
	"fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1", "fe80::a9fe:a9fe",
)

func mustPrefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func mustAddrs(list ...string) []netip.Addr {
	out := make([]netip.Addr, len(list))
	for i, s := range list {
		out[i] = netip.MustParseAddr(s)
	}
	return out
}

// everything reports whether p is all of IPv4 or IPv6.
func everything(p netip.Prefix) bool { return p.Bits() == 0 }

// tooWide reports whether p, opened, would open nearly everything special there is:
// no network inside is as large.
func tooWide(p netip.Prefix) bool {
	if p.Addr().Is4() {
		return p.Bits() < 4
	}
	return p.Bits() < 7
}

// OpensSpecial reports whether p, among the ranges that the names of a rule may have,
// opens special-purpose addresses.
func OpensSpecial(p netip.Prefix) bool {
	_, touches := specialWithin(p)
	return touches && !everything(p)
}

// specialWithin returns a special-purpose range that p touches, if there is
// one, and a metadata address counts as a range of its own.
func specialWithin(p netip.Prefix) (netip.Prefix, bool) {
	for _, s := range specialRanges {
		if s.Overlaps(p) {
			return s, true
		}
	}
	if metadata(p) {
		return p, true
	}
	if inner, ok := isatap(p); ok {
		return specialWithin(inner)
	}
	return netip.Prefix{}, false
}

// isatap returns the IPv4 range that p carries behind an ISATAP identifier (RFC
// 5214, 6.1), where p is narrow enough to be of that form alone.
func isatap(p netip.Prefix) (netip.Prefix, bool) {
	const carried = 96 // bits before the IPv4 address
	b := p.Addr().As16()
	if !p.Addr().Is6() || p.Bits() < carried || b[8]&^3 != 0 || b[9] != 0 || b[10] != 0x5e || b[11] != 0xfe {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(b[12:])), p.Bits()-carried), true
}

// own reports whether p is nothing but the host itself.
func own(p netip.Prefix) bool {
	return slices.ContainsFunc(ownRanges, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) })
}

// metadata reports whether p is exactly one metadata address.
func metadata(p netip.Prefix) bool {
	return p.IsSingleIP() && slices.Contains(metadataAddresses, p.Addr())
}
