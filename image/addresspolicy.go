package image

import (
	"fmt"
	"net/netip"
	"sync/atomic"
)

// reach is how far from the public internet an address is.
type reach int32

const (
	reachPublic reach = iota
	// reachPrivate: the networks of an organisation.
	reachPrivate
	// reachLoopback: this machine.
	reachLoopback
	// reachNever: link-local, where cloud metadata is, multicast, unspecified.
	reachNever
)

// specialRanges are what a redirect from a public registry may not reach, from the
// IANA special-purpose registries; the full classifier for guests is elsewhere.
var specialRanges = []struct {
	prefix netip.Prefix
	reach  reach
}{
	{netip.MustParsePrefix("127.0.0.0/8"), reachLoopback},
	{netip.MustParsePrefix("::1/128"), reachLoopback},
	{netip.MustParsePrefix("169.254.0.0/16"), reachNever},
	{netip.MustParsePrefix("168.63.129.16/32"), reachNever}, // Azure's wire server
	{netip.MustParsePrefix("100.100.100.200/32"), reachNever},
	{netip.MustParsePrefix("192.80.8.124/32"), reachNever},
	{netip.MustParsePrefix("192.0.0.0/24"), reachNever},
	{netip.MustParsePrefix("fd00:ec2::/32"), reachNever},
	{netip.MustParsePrefix("fd20:ce::254/128"), reachNever},
	{netip.MustParsePrefix("fe80::/10"), reachNever},
	{netip.MustParsePrefix("0.0.0.0/8"), reachNever},
	{netip.MustParsePrefix("224.0.0.0/3"), reachNever},
	{netip.MustParsePrefix("::/128"), reachNever},
	{netip.MustParsePrefix("ff00::/8"), reachNever},
	{netip.MustParsePrefix("10.0.0.0/8"), reachPrivate},
	{netip.MustParsePrefix("100.64.0.0/10"), reachPrivate},
	{netip.MustParsePrefix("172.16.0.0/12"), reachPrivate},
	{netip.MustParsePrefix("192.168.0.0/16"), reachPrivate},
	{netip.MustParsePrefix("192.0.2.0/24"), reachPrivate},
	{netip.MustParsePrefix("198.18.0.0/15"), reachPrivate},
	{netip.MustParsePrefix("198.51.100.0/24"), reachPrivate},
	{netip.MustParsePrefix("203.0.113.0/24"), reachPrivate},
	{netip.MustParsePrefix("fc00::/7"), reachPrivate},
	{netip.MustParsePrefix("fec0::/10"), reachPrivate},
	{netip.MustParsePrefix("2001:db8::/32"), reachPrivate},
	// Forms that carry an IPv4 address: no registry lives there.
	{netip.MustParsePrefix("::/96"), reachNever},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), reachNever},
	{netip.MustParsePrefix("64:ff9b::/96"), reachNever},
	{netip.MustParsePrefix("64:ff9b:1::/48"), reachNever},
	{netip.MustParsePrefix("2001::/32"), reachNever},
	{netip.MustParsePrefix("2002::/16"), reachNever},
}

func reachOf(addr netip.Addr) reach {
	addr = addr.Unmap().WithZone("")
	for _, r := range specialRanges {
		if r.prefix.Contains(addr) {
			return r.reach
		}
	}
	return reachPublic
}

// addressPolicy is the default dialPolicy. The registry's host may have any address except
// those that only an attack would use, since the user named it. Its redirects may not lead
// closer to this machine than the registry itself is.
type addressPolicy struct {
	nearest atomic.Int32
}

func newAddressPolicy() *addressPolicy { return &addressPolicy{} }

func (p *addressPolicy) check(t dialTarget) error {
	got := reachOf(t.addr.Addr())
	if t.host == t.registry {
		// A name that resolves to a metadata address is a rebinding attack; an address that the
		// user typed is the user's choice.
		if _, err := netip.ParseAddr(t.host); err != nil && got == reachNever {
			return fmt.Errorf("%w: registry %q resolves to %s", ErrAddress, t.host, t.addr.Addr())
		}
		if got != reachNever {
			p.raise(got)
		}
		return nil
	}
	if got <= reach(p.nearest.Load()) {
		return nil
	}
	return fmt.Errorf("%w: registry %q leads to %q at %s; if that is meant, name that registry itself",
		ErrAddress, t.registry, t.host, t.addr.Addr())
}

// publicOnly is the policy for a reference that somebody else chose.
func publicOnly(t dialTarget) error {
	if reachOf(t.addr.Addr()) != reachPublic {
		return fmt.Errorf("%w: registry %q leads to %s, which is no public address", ErrAddress, t.registry, t.addr.Addr())
	}
	return nil
}

func (p *addressPolicy) raise(to reach) {
	for {
		cur := p.nearest.Load()
		if int32(to) <= cur || p.nearest.CompareAndSwap(cur, int32(to)) {
			return
		}
	}
}
