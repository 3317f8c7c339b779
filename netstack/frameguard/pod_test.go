package frameguard

import (
	"net/netip"
	"testing"
)

// TestI4_SourceIsTheConfiguredAddress: on a link without neighbours, too, the guest sends from the address that it was given
// and from no other, such as that of a neighbour, of the gateway or of a link that names none.
func TestI4_SourceIsTheConfiguredAddress(t *testing.T) {
	t.Parallel()
	pod4, pod6 := netip.MustParseAddr("10.213.7.5"), netip.MustParseAddr("2a0a:1::5")
	pod := testGuard(t, func(c *Config) {
		c.Guest4, c.Gateway4, c.Prefix4 = pod4, netip.MustParseAddr("169.254.127.1"), 32
		c.Guest6, c.Prefix6, c.DHCP, c.RouterAdvertisements = pod6, 128, false, false
	})
	def, plain := Default(), testGuard(t, nil)
	addr := netip.MustParseAddr
	for name, c := range map[string]struct {
		src, dst   netip.Addr
		pod, plain Verdict
	}{
		"its own":            {pod4, routable4, Pass, DropSourceIP},
		"another link's":     {def.Guest4, routable4, DropSourceIP, Pass},
		"a neighbour's":      {addr("10.213.7.6"), routable4, DropSourceIP, DropSourceIP},
		"the gateway's":      {addr("169.254.127.1"), routable4, DropSourceIP, DropSourceIP},
		"to the gateway":     {pod4, addr("169.254.127.1"), Pass, DropSourceIP},
		"to a neighbour":     {pod4, addr("10.213.7.255"), Pass, DropSourceIP},
		"to everybody":       {pod4, addr("255.255.255.255"), DropMulticast, DropSourceIP},
		"to itself":          {pod4, pod4, DropDestIP, DropSourceIP},
		"its own IPv6":       {pod6, routable6, Pass, DropSourceIP},
		"another link's v6":  {def.Guest6, routable6, DropSourceIP, Pass},
		"a neighbour's IPv6": {addr("2a0a:1::6"), routable6, DropSourceIP, DropSourceIP},
		"to itself by IPv6":  {pod6, pod6, DropDestIP, DropSourceIP},
	} {
		f := frame(def.GatewayMAC, guestMAC, etherTypeIPv4, nil)
		if c.src.Is4() {
			f = append(f, v4(c.src, c.dst, protoTCP, summed(c.src, c.dst, protoTCP, make([]byte, 20), 16, false))...)
		} else {
			f = frame(def.GatewayMAC, guestMAC, etherTypeIPv6, v6(c.src, c.dst, protoTCP, 64, make([]byte, 20)))
		}
		if got := pod.check(f); got != c.pod {
			t.Errorf("%s: %q, want %q", name, got.Reason(), c.pod.Reason())
		}
		if got := plain.check(f); got != c.plain {
			t.Errorf("%s, on a plain link: %q, want %q", name, got.Reason(), c.plain.Reason())
		}
	}
	for name, c := range map[string]struct {
		sender, target string
		want           Verdict
	}{
		"for the gateway":           {"10.213.7.5", "169.254.127.1", Pass},
		"as a neighbour":            {"10.213.7.6", "169.254.127.1", DropARP},
		"as the gateway":            {"169.254.127.1", "10.213.7.5", DropARP},
		"for a neighbour":           {"10.213.7.5", "10.213.7.1", DropARP},
		"as a link that names none": {def.Guest4.String(), def.Gateway4.String(), DropARP},
	} {
		f := frame(allNodes, guestMAC, etherTypeARP, arpPacket(1, guestMAC, addr(c.sender), addr(c.target)))
		if got := pod.check(f); got != c.want {
			t.Errorf("ARP %s: %q, want %q", name, got.Reason(), c.want.Reason())
		}
	}
}
