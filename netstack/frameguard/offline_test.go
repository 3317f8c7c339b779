package frameguard

import (
	"net"
	"net/netip"
	"testing"
)

// TestI4_ReviewsDropWithoutALease: the guard for frames out of captures drops what the guard
// drops under every lease, and on msb's own link what comes from other addresses than the guest's.
func TestI4_ReviewsDropWithoutALease(t *testing.T) {
	t.Parallel()
	var (
		router  = net.HardwareAddr{0x52, 0x54, 0, 1, 2, 3}
		machine = net.HardwareAddr{0x52, 0x54, 0, 9, 9, 9}
		m4, r4  = netip.MustParseAddr("10.0.2.15"), netip.MustParseAddr("10.0.2.2")
		m6      = netip.MustParseAddr("2001:db8:5::15")
		mLL     = netip.MustParseAddr("fe80::15")
		away    = func(body []byte) []byte { return frame(router, machine, etherTypeIPv4, body) }
		away6   = func(body []byte) []byte { return frame(router, machine, etherTypeIPv6, body) }
	)
	for name, tc := range map[string]struct {
		frame []byte
		want  Verdict
	}{
		"msb's link":                         {frame(gwMAC, guestMAC, etherTypeIPv4, v4(g4, routable4, protoTCP, tcp20)), Pass},
		"msb's link, another guest's MAC":    {frame(gwMAC, otherMAC, etherTypeIPv4, v4(g4, routable4, protoTCP, tcp20)), Pass},
		"msb's link, the gateway's MAC":      {frame(gwMAC, gwMAC, etherTypeIPv4, v4(g4, routable4, protoTCP, tcp20)), DropSourceMAC},
		"msb's link, a neighbour's address":  {frame(gwMAC, guestMAC, etherTypeIPv4, v4(netip.MustParseAddr("192.168.127.3"), routable4, protoTCP, tcp20)), DropSourceIP},
		"msb's link, an address from afar":   {frame(gwMAC, guestMAC, etherTypeIPv4, v4(r4, routable4, protoTCP, tcp20)), DropSourceIP},
		"msb's link, an address from afar 6": {frame(gwMAC, guestMAC, etherTypeIPv6, v6(m6, routable6, protoTCP, 64, tcp20)), DropSourceIP},
		"msb's link, ARP for a neighbour":    {frame(allNodes, guestMAC, etherTypeARP, arpPacket(1, guestMAC, g4, netip.MustParseAddr("192.168.127.9"))), DropARP},
		"msb's link, ARP for the gateway":    {frame(allNodes, guestMAC, etherTypeARP, arpPacket(1, guestMAC, g4, gw4)), Pass},
		"another link":                       {away(v4(m4, routable4, protoTCP, tcp20)), Pass},
		"another link 6":                     {away6(v6(m6, routable6, protoTCP, 64, tcp20)), Pass},
		"another link's neighbours":          {frame(allNodes, machine, etherTypeARP, arpPacket(1, machine, m4, r4)), Pass},
		"another link's neighbours 6":        {frame(solicited, machine, etherTypeIPv6, v6(mLL, netip.MustParseAddr("ff02::1:ff00:1"), protoICMPv6, 255, solicit(icmp6NS, routable6, nil))), Pass},
		"another link's announcement":        {frame(allNodes, machine, etherTypeARP, arpPacket(1, machine, m4, m4)), Pass},
		"another link's DHCP":                {frame(allNodes, machine, etherTypeIPv4, v4(none4, bcast, protoUDP, ports(68, 67))), Pass},
		"another MAC inside":                 {frame(allNodes, machine, etherTypeARP, arpPacket(1, otherMAC, m4, r4)), DropARP},
		"a group's MAC":                      {frame(router, net.HardwareAddr{1, 0, 0x5e, 0, 0, 1}, etherTypeIPv4, v4(m4, routable4, protoTCP, tcp20)), DropSourceMAC},
		"loopback":                           {away(v4(netip.MustParseAddr("127.0.0.1"), routable4, protoTCP, tcp20)), DropSourceIP},
		"no address":                         {away(v4(none4, routable4, protoTCP, tcp20)), DropSourceIP},
		"a group's address":                  {away(v4(netip.MustParseAddr("224.0.0.1"), routable4, protoTCP, tcp20)), DropSourceIP},
		"no address 6":                       {away6(v6(none6, routable6, protoTCP, 64, tcp20)), DropSourceIP},
		"multicast":                          {frame(net.HardwareAddr{1, 0, 0x5e, 0, 0, 0xfb}, machine, etherTypeIPv4, v4(m4, netip.MustParseAddr("224.0.0.251"), protoUDP, ports(5353, 5353))), DropMulticast},
		"a VLAN":                             {frame(router, machine, 0x8100, v4(m4, routable4, protoTCP, tcp20)), DropEtherType},
		"options":                            {away(with(v4(m4, routable4, protoTCP, make([]byte, 40)), 0, 0x47)), DropOptions},
		"a length that lies":                 {away(with(v4(m4, routable4, protoTCP, tcp20), 2, 0xff, 0xff)), DropHeader},
		"a DHCP server":                      {frame(allNodes, machine, etherTypeIPv4, v4(m4, bcast, protoUDP, ports(67, 68))), DropDHCPServer},
		"a router":                           {frame(solicited, machine, etherTypeIPv6, v6(mLL, netip.MustParseAddr("ff02::1"), protoICMPv6, 255, solicit(icmp6RA, routable6, nil))), DropRouterAdvert},
		"a redirect":                         {away(v4(m4, r4, protoICMP, with(tcp20, 0, 5))), DropICMPType},
		"GRE":                                {away(v4(m4, routable4, 47, tcp20)), DropProtocol},
		"an extension header":                {away6(v6(m6, routable6, extHopByHop, 64, tcp20)), DropExtension},
		"13 bytes":                           {make([]byte, 13), DropShort},
	} {
		if got := NewOffline(gw4, gw6).Check(tc.frame, false); got != tc.want.Reason() {
			t.Errorf("%s: %q, want %q", name, got, tc.want.Reason())
		}
	}
}

// TestI4_AnsweredHostsAreTheGuest: from then on the MAC of msb's link is known, and no other passes.
func TestI4_AnsweredHostsAreTheGuest(t *testing.T) {
	t.Parallel()
	o := NewOffline(gw4, gw6)
	packet := v4(g4, routable4, protoTCP, tcp20)
	o.Sent(frame(otherMAC, guestMAC, etherTypeIPv4, packet)) // of somebody else
	o.Sent(frame(allNodes, gwMAC, etherTypeIPv4, packet))    // to everybody
	for _, src := range []net.HardwareAddr{otherMAC, guestMAC} {
		if got := o.Check(frame(gwMAC, src, etherTypeIPv4, packet), false); got != "" {
			t.Errorf("before any answer a frame of %s: %q", src, got)
		}
	}
	o.Sent(frame(guestMAC, gwMAC, etherTypeIPv4, packet))
	o.Sent(frame(otherMAC, gwMAC, etherTypeIPv4, packet))
	if got := o.Check(frame(gwMAC, guestMAC, etherTypeIPv4, packet), false); got != "" {
		t.Errorf("a frame of the guest: %q", got)
	}
	if got := o.Check(frame(gwMAC, otherMAC, etherTypeIPv4, packet), false); got != DropSourceMAC.Reason() {
		t.Errorf("a frame of another: %q, want %q", got, DropSourceMAC.Reason())
	}
}
