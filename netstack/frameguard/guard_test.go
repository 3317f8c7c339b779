package frameguard

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
)

var (
	guestMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	otherMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 9}
	allNodes  = net.HardwareAddr{255, 255, 255, 255, 255, 255}
	solicited = net.HardwareAddr{0x33, 0x33, 0xff, 0, 0, 1}
	guestLL   = LinkLocal(guestMAC)
	routable4 = netip.MustParseAddr("93.184.216.34")
	routable6 = netip.MustParseAddr("2606:2800:220:1::1")
)

func testGuard(t testing.TB, mod func(*Config)) *Guard {
	t.Helper()
	cfg := Default()
	cfg.GuestMAC, cfg.DHCP, cfg.RouterAdvertisements = guestMAC, true, true
	if mod != nil {
		mod(&cfg)
	}
	return New(&cfg)
}

// frame puts bytes together; integers are single bytes.
func frame(dst, src net.HardwareAddr, kind uint16, body []byte) []byte {
	f := append(append([]byte(nil), dst...), src...)
	return append(binary.BigEndian.AppendUint16(f, kind), body...)
}

// v4 is an IPv4 packet. Its header has its checksum, what it carries has none.
func v4(src, dst netip.Addr, proto byte, payload []byte) []byte {
	p := make([]byte, ipv4Header, ipv4Header+len(payload))
	p[0], p[8], p[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(p[2:], uint16(ipv4Header+len(payload)))
	copy(p[12:], src.AsSlice())
	copy(p[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(p[10:], ^checksum.Checksum(p, 0))
	return append(p, payload...)
}

func v6(src, dst netip.Addr, next, hops byte, payload []byte) []byte {
	p := make([]byte, ipv6Header, ipv6Header+len(payload))
	p[0], p[6], p[7] = 0x60, next, hops
	binary.BigEndian.PutUint16(p[4:], uint16(len(payload)))
	copy(p[8:], src.AsSlice())
	copy(p[24:], dst.AsSlice())
	return append(p, payload...)
}

func arpPacket(op byte, sha net.HardwareAddr, spa, tpa netip.Addr) []byte {
	p := append([]byte{0, 1, 8, 0, 6, 4, 0, op}, sha...)
	p = append(p, spa.AsSlice()...)
	p = append(p, 0, 0, 0, 0, 0, 0)
	return append(p, tpa.AsSlice()...)
}

func ports(from, to uint16) []byte {
	p := binary.BigEndian.AppendUint16(nil, from)
	return append(binary.BigEndian.AppendUint16(p, to), 0, 8, 0, 0)
}

func solicit(kind byte, target netip.Addr, option []byte) []byte {
	return append(append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, target.AsSlice()...), option...)
}

func with(p []byte, at int, b ...byte) []byte {
	p = append([]byte(nil), p...)
	copy(p[at:], b)
	return p
}

var (
	g4, gw4 = Default().Guest4, Default().Gateway4
	g6, gw6 = Default().Guest6, Default().Gateway6
	gwMAC   = Default().GatewayMAC
	none4   = netip.IPv4Unspecified()
	none6   = netip.IPv6Unspecified()
	bcast   = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	other4  = netip.MustParseAddr("192.168.127.77")
	other6  = netip.MustParseAddr("fd6d:7362::77")
	tcp20   = make([]byte, 20)
	ourLL   = append([]byte{1, 1}, guestMAC...)
	badLL   = append([]byte{1, 1}, otherMAC...)
)

func TestI3_I4_GuardJudgesFrames(t *testing.T) {
	t.Parallel()
	ip4 := func(p []byte) []byte { return frame(gwMAC, guestMAC, etherTypeIPv4, p) }
	ip6 := func(p []byte) []byte { return frame(gwMAC, guestMAC, etherTypeIPv6, p) }
	mc6 := func(p []byte) []byte { return frame(solicited, guestMAC, etherTypeIPv6, p) }
	arp := func(p []byte) []byte { return frame(allNodes, guestMAC, etherTypeARP, p) }
	ff02 := netip.MustParseAddr("ff02::1:ff00:1")
	gwLL := LinkLocal(gwMAC)
	for name, tc := range map[string]struct {
		frame []byte
		want  Verdict
	}{
		"tcp":                            {ip4(v4(g4, routable4, protoTCP, tcp20)), Pass},
		"udp":                            {ip4(v4(g4, routable4, protoUDP, ports(1, 53))), Pass},
		"padded to 60 bytes":             {append(ip4(v4(g4, routable4, protoUDP, ports(1, 53))), make([]byte, 18)...), Pass},
		"tcp over 6":                     {ip6(v6(g6, routable6, protoTCP, 64, tcp20)), Pass},
		"link-local source":              {ip6(v6(guestLL, gwLL, protoTCP, 64, tcp20)), Pass},
		"rarp":                           {frame(allNodes, guestMAC, etherTypeRARP, make([]byte, 28)), DropQuiet},
		"vlan":                           {frame(gwMAC, guestMAC, 0x8100, v4(g4, routable4, protoTCP, tcp20)), DropEtherType},
		"double vlan":                    {frame(gwMAC, guestMAC, 0x88a8, nil), DropEtherType},
		"llc":                            {frame(gwMAC, guestMAC, 60, make([]byte, 60)), DropEtherType},
		"lldp":                           {frame(net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0xe}, guestMAC, 0x88cc, nil), DropMulticast},
		"spanning tree":                  {frame(net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0}, guestMAC, 38, make([]byte, 46)), DropMulticast},
		"lldp to the gateway":            {frame(gwMAC, guestMAC, 0x88cc, nil), DropEtherType},
		"igmp report":                    {frame(net.HardwareAddr{1, 0, 0x5e, 0, 0, 0x16}, guestMAC, etherTypeIPv4, with(v4(g4, netip.MustParseAddr("224.0.0.22"), 2, make([]byte, 20)), 0, 0x46)), DropMulticast},
		"igmp report without a lease":    {frame(net.HardwareAddr{1, 0, 0x5e, 0, 0, 0x16}, guestMAC, etherTypeIPv4, with(v4(none4, netip.MustParseAddr("224.0.0.22"), 2, make([]byte, 20)), 0, 0x46)), DropMulticast},
		"igmp report as another":         {frame(net.HardwareAddr{1, 0, 0x5e, 0, 0, 0x16}, guestMAC, etherTypeIPv4, v4(other4, netip.MustParseAddr("224.0.0.22"), 2, make([]byte, 20))), DropSourceIP},
		"source route to a group":        {frame(net.HardwareAddr{1, 0, 0x5e, 0, 0, 0x16}, guestMAC, etherTypeIPv4, with(v4(g4, netip.MustParseAddr("224.0.0.22"), protoUDP, make([]byte, 40)), 0, 0x47)), DropOptions},
		"mld report without an address":  {mc6(v6(none6, netip.MustParseAddr("ff02::16"), extHopByHop, 1, tcp20)), DropMulticast},
		"jumbo":                          {ip4(make([]byte, MaxFrame)), DropLong},
		"mac of another":                 {frame(gwMAC, otherMAC, etherTypeIPv4, v4(g4, routable4, protoTCP, tcp20)), DropSourceMAC},
		"gateway's mac":                  {frame(gwMAC, gwMAC, etherTypeIPv4, v4(g4, routable4, protoTCP, tcp20)), DropSourceMAC},
		"to another mac":                 {frame(otherMAC, guestMAC, etherTypeIPv4, v4(g4, routable4, protoTCP, tcp20)), DropDestMAC},
		"arp to another mac":             {frame(otherMAC, guestMAC, etherTypeARP, arpPacket(1, guestMAC, g4, gw4)), DropDestMAC},
		"no protocol to another mac":     {frame(otherMAC, guestMAC, 0x88b5, nil), DropDestMAC},
		"unicast ip to broadcast mac":    {frame(allNodes, guestMAC, etherTypeIPv4, v4(g4, routable4, protoTCP, tcp20)), DropDestMAC},
		"unicast ip6 to group mac":       {mc6(v6(g6, routable6, protoTCP, 64, tcp20)), DropDestMAC},
		"another ip":                     {ip4(v4(other4, routable4, protoTCP, tcp20)), DropSourceIP},
		"gateway's ip":                   {ip4(v4(gw4, routable4, protoTCP, tcp20)), DropSourceIP},
		"unspecified ip":                 {ip4(v4(none4, routable4, protoTCP, tcp20)), DropSourceIP},
		"another ip6":                    {ip6(v6(other6, routable6, protoTCP, 64, tcp20)), DropSourceIP},
		"gateway's ip6":                  {ip6(v6(gw6, routable6, protoTCP, 64, tcp20)), DropSourceIP},
		"unspecified ip6":                {ip6(v6(none6, routable6, protoTCP, 64, tcp20)), DropSourceIP},
		"another link-local":             {ip6(v6(netip.MustParseAddr("fe80::77"), gwLL, protoTCP, 64, tcp20)), DropSourceIP},
		"multicast":                      {frame(net.HardwareAddr{1, 0, 0x5e, 0, 0, 0xfb}, guestMAC, etherTypeIPv4, v4(g4, netip.MustParseAddr("224.0.0.251"), protoUDP, ports(5353, 5353))), DropMulticast},
		"broadcast":                      {frame(allNodes, guestMAC, etherTypeIPv4, v4(g4, bcast, protoUDP, ports(137, 137))), DropMulticast},
		"subnet broadcast":               {frame(allNodes, guestMAC, etherTypeIPv4, v4(g4, netip.MustParseAddr("192.168.127.255"), protoUDP, ports(137, 137))), DropMulticast},
		"class e":                        {ip4(v4(g4, netip.MustParseAddr("240.0.0.1"), protoTCP, tcp20)), Pass},
		"to itself":                      {ip4(v4(g4, g4, protoTCP, tcp20)), DropDestIP},
		"to 0.0.0.0":                     {ip4(v4(g4, none4, protoTCP, tcp20)), DropDestIP},
		"to ::":                          {ip6(v6(g6, none6, protoTCP, 64, tcp20)), DropDestIP},
		"mdns6":                          {mc6(v6(guestLL, netip.MustParseAddr("ff02::fb"), protoUDP, 255, ports(5353, 5353))), DropMulticast},
		"ipv4 cut":                       {ip4(make([]byte, 19)), DropHeader},
		"ipv4 version 6":                 {ip4(with(v4(g4, routable4, protoTCP, tcp20), 0, 0x65)), DropHeader},
		"ipv4 length beyond the frame":   {ip4(with(v4(g4, routable4, protoTCP, tcp20), 2, 0xff, 0xff)), DropHeader},
		"ipv4 length under its header":   {ip4(with(v4(g4, routable4, protoTCP, tcp20), 2, 0, 19)), DropHeader},
		"ipv4 header of 16 bytes":        {ip4(with(v4(g4, routable4, protoTCP, tcp20), 0, 0x44)), DropHeader},
		"source route":                   {ip4(with(v4(g4, routable4, protoTCP, make([]byte, 40)), 0, 0x47)), DropOptions},
		"igmp":                           {ip4(v4(g4, routable4, 2, tcp20)), DropProtocol},
		"gre":                            {ip4(v4(g4, routable4, 47, tcp20)), DropProtocol},
		"ipv6 in ipv4":                   {ip4(v4(g4, routable4, 41, tcp20)), DropProtocol},
		"sctp over 6":                    {ip6(v6(g6, routable6, 132, 64, tcp20)), DropProtocol},
		"udp fragment":                   {ip4(with(v4(g4, routable4, protoUDP, tcp20[:16]), 6, 0x20, 0)), Pass},
		"last fragment":                  {ip4(with(v4(g4, routable4, protoUDP, tcp20[:13]), 6, 0, 1)), Pass},
		"fragment of odd length":         {ip4(with(v4(g4, routable4, protoUDP, tcp20), 6, 0x20, 0)), DropFragment},
		"empty fragment":                 {ip4(with(v4(g4, routable4, protoUDP, nil), 6, 0, 1)), DropFragment},
		"fragment to the end":            {ip4(with(v4(g4, routable4, protoUDP, tcp20[:19]), 6, 0x1f, 0xfb)), Pass},
		"fragment beyond the end":        {ip4(with(v4(g4, routable4, protoUDP, tcp20), 6, 0x1f, 0xfb)), DropFragment},
		"fragment of odd length over 6":  {ip6(v6(g6, routable6, extFragment, 64, with(with(tcp20, 0, protoUDP), 3, 1))), DropFragment},
		"empty fragment over 6":          {ip6(v6(g6, routable6, extFragment, 64, with(tcp20[:8], 0, protoUDP))), DropFragment},
		"fragment to the end over 6":     {ip6(v6(g6, routable6, extFragment, 64, with(with(tcp20[:15], 0, protoUDP), 2, 0xff, 0xf8))), Pass},
		"fragment beyond the end over 6": {ip6(v6(g6, routable6, extFragment, 64, with(with(tcp20[:16], 0, protoUDP), 2, 0xff, 0xf8))), DropFragment},
		"mapped IPv4 address":            {ip6(v6(g6, netip.MustParseAddr("::ffff:127.0.0.1"), protoTCP, 64, tcp20)), DropDestIP},
		"icmp fragment":                  {ip4(with(v4(g4, routable4, protoICMP, tcp20), 6, 0x20, 0)), DropFragment},
		"ping of death's tail":           {ip4(with(v4(g4, gw4, protoICMP, tcp20), 6, 0x1f, 0xff)), DropFragment},
		"echo":                           {ip4(v4(g4, gw4, protoICMP, with(tcp20, 0, 8))), Pass},
		"icmp cut":                       {ip4(v4(g4, gw4, protoICMP, []byte{8, 0, 0})), DropHeader},
		"redirect":                       {ip4(v4(g4, gw4, protoICMP, with(tcp20, 0, 5))), DropICMPType},
		"timestamp":                      {ip4(v4(g4, gw4, protoICMP, with(tcp20, 0, 13))), DropICMPType},
		"dhcp discover":                  {frame(allNodes, guestMAC, etherTypeIPv4, v4(none4, bcast, protoUDP, ports(68, 67))), TakeDHCP},
		"dhcp renewal":                   {ip4(v4(g4, gw4, protoUDP, ports(68, 67))), TakeDHCP},
		"rogue dhcp server":              {frame(allNodes, guestMAC, etherTypeIPv4, v4(g4, bcast, protoUDP, ports(67, 68))), DropDHCPServer},
		"dhcp discover as another":       {frame(allNodes, guestMAC, etherTypeIPv4, v4(other4, bcast, protoUDP, ports(68, 67))), DropDHCP},
		"dhcp renewal as another":        {ip4(v4(other4, gw4, protoUDP, ports(68, 67))), DropDHCP},
		"dhcp to another server":         {ip4(v4(g4, routable4, protoUDP, ports(68, 67))), DropDHCP},
		"dhcp from another port":         {ip4(v4(g4, gw4, protoUDP, ports(1000, 67))), DropDHCP},
		"arp for the gateway":            {arp(arpPacket(1, guestMAC, g4, gw4)), Pass},
		"arp answer":                     {frame(gwMAC, guestMAC, etherTypeARP, arpPacket(2, guestMAC, g4, gw4)), Pass},
		"arp for another address":        {arp(arpPacket(1, guestMAC, g4, other4)), DropARP},
		"arp claims the gateway":         {arp(arpPacket(2, guestMAC, gw4, g4)), DropARP},
		"gratuitous claims the gateway":  {arp(arpPacket(1, guestMAC, gw4, gw4)), DropARP},
		"arp with another mac inside":    {arp(arpPacket(1, otherMAC, g4, gw4)), DropARP},
		"gratuitous arp":                 {arp(arpPacket(1, guestMAC, g4, g4)), DropQuiet},
		"arp probe":                      {arp(arpPacket(1, guestMAC, none4, g4)), DropQuiet},
		"arp cut":                        {arp(arpPacket(1, guestMAC, g4, gw4)[:27]), DropARP},
		"arp of another hardware":        {arp(with(arpPacket(1, guestMAC, g4, gw4), 1, 6)), DropARP},
		"ipv6 cut":                       {ip6(make([]byte, 39)), DropHeader},
		"ipv6 length beyond":             {ip6(with(v6(g6, routable6, protoTCP, 64, tcp20), 4, 0, 21)), DropHeader},
		"jumbogram":                      {ip6(with(v6(g6, routable6, extHopByHop, 64, tcp20), 4, 0, 0)), DropHeader},
		"routing header 0":               {ip6(v6(g6, routable6, extRouting, 64, tcp20)), DropRoutingHeader},
		"hop-by-hop":                     {ip6(v6(g6, routable6, extHopByHop, 64, tcp20)), DropExtension},
		"destination options":            {ip6(v6(g6, routable6, extDestOpts, 64, tcp20)), DropExtension},
		"mld report":                     {mc6(v6(guestLL, netip.MustParseAddr("ff02::16"), extHopByHop, 1, tcp20)), DropMulticast},
		"no next header":                 {ip6(v6(g6, routable6, extNone, 64, tcp20)), DropExtension},
		"udp fragment over 6":            {ip6(v6(g6, routable6, extFragment, 64, with(tcp20, 0, protoUDP))), Pass},
		"icmp fragment over 6":           {ip6(v6(g6, routable6, extFragment, 64, with(tcp20, 0, protoICMPv6))), DropFragment},
		"chain behind a fragment":        {ip6(v6(g6, routable6, extFragment, 64, with(tcp20, 0, extRouting))), DropFragment},
		"fragment header cut":            {ip6(v6(g6, routable6, extFragment, 64, tcp20[:7])), DropHeader},
		"echo over 6":                    {ip6(v6(g6, routable6, protoICMPv6, 64, with(tcp20, 0, icmp6Echo))), Pass},
		"solicits the gateway":           {mc6(v6(g6, ff02, protoICMPv6, 255, solicit(icmp6NS, gw6, ourLL))), Pass},
		"solicits the gateway's fe80":    {mc6(v6(guestLL, ff02, protoICMPv6, 255, solicit(icmp6NS, gwLL, ourLL))), Pass},
		"solicits another":               {mc6(v6(g6, ff02, protoICMPv6, 255, solicit(icmp6NS, other6, ourLL))), DropNDP},
		"solicits from afar":             {mc6(v6(g6, ff02, protoICMPv6, 254, solicit(icmp6NS, gw6, ourLL))), DropNDP},
		"solicits with another mac":      {mc6(v6(g6, ff02, protoICMPv6, 255, solicit(icmp6NS, gw6, badLL))), DropNDP},
		"solicits with a zero option":    {mc6(v6(g6, ff02, protoICMPv6, 255, solicit(icmp6NS, gw6, make([]byte, 8)))), DropNDP},
		"solicits as another":            {mc6(v6(other6, ff02, protoICMPv6, 255, solicit(icmp6NS, gw6, ourLL))), DropSourceIP},
		"dad of its own":                 {mc6(v6(none6, ff02, protoICMPv6, 255, solicit(icmp6NS, g6, nil))), DropQuiet},
		"dad of the gateway's":           {mc6(v6(none6, ff02, protoICMPv6, 255, solicit(icmp6NS, gw6, nil))), DropNDP},
		"advertises itself":              {ip6(v6(g6, gw6, protoICMPv6, 255, solicit(icmp6NA, g6, nil))), Pass},
		"advertises with its mac":        {ip6(v6(g6, gw6, protoICMPv6, 255, solicit(icmp6NA, g6, append([]byte{2, 1}, guestMAC...)))), Pass},
		"advertises with another mac":    {ip6(v6(g6, gw6, protoICMPv6, 255, solicit(icmp6NA, g6, append([]byte{2, 1}, otherMAC...)))), DropNDP},
		"both options, one another's":    {ip6(v6(g6, gw6, protoICMPv6, 255, solicit(icmp6NA, g6, append(append([]byte{}, ourLL...), append([]byte{2, 1}, otherMAC...)...)))), DropNDP},
		"advertises the gateway":         {ip6(v6(g6, gw6, protoICMPv6, 255, solicit(icmp6NA, gw6, nil))), DropNDP},
		"router advertisement":           {mc6(v6(guestLL, ff02, protoICMPv6, 255, solicit(icmp6RA, gw6, nil))), DropRouterAdvert},
		"redirect over 6":                {ip6(v6(guestLL, gw6, protoICMPv6, 255, solicit(icmp6Redir, gw6, nil))), DropRouterAdvert},
		"router solicitation":            {mc6(v6(guestLL, netip.MustParseAddr("ff02::2"), protoICMPv6, 255, append([]byte{icmp6RS, 0, 0, 0, 0, 0, 0, 0}, ourLL...))), TakeRS},
		"router solicitation, wrong mac": {mc6(v6(guestLL, netip.MustParseAddr("ff02::2"), protoICMPv6, 255, append([]byte{icmp6RS, 0, 0, 0, 0, 0, 0, 0}, badLL...))), DropQuiet},
	} {
		if got := testGuard(t, nil).check(tc.frame); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got.Reason(), tc.want.Reason())
		}
	}
}

func TestI3_ShortFramesAreDropped(t *testing.T) {
	t.Parallel()
	g := testGuard(t, nil)
	whole := frame(gwMAC, guestMAC, etherTypeIPv4, nil)
	for n := range ethHeader {
		if got := g.check(whole[:n:n]); got != DropShort {
			t.Errorf("%d bytes: %q", n, got.Reason())
		}
	}
}

func TestI4_FirstUnicastSourceIsLeased(t *testing.T) {
	t.Parallel()
	g := testGuard(t, func(c *Config) { c.GuestMAC = nil })
	packet := v4(g4, routable4, protoTCP, tcp20)
	if g.GuestMAC() != nil {
		t.Fatal("a MAC was leased before any frame")
	}
	for _, src := range []net.HardwareAddr{allNodes, make(net.HardwareAddr, 6), gwMAC} {
		if got := g.check(frame(gwMAC, src, etherTypeIPv4, packet)); got != DropSourceMAC {
			t.Errorf("source %s: %q", src, got.Reason())
		}
	}
	if got := g.check(frame(gwMAC, guestMAC, etherTypeIPv4, packet)); got != Pass || g.GuestMAC().String() != guestMAC.String() {
		t.Errorf("first source: %q, leased %s", got.Reason(), g.GuestMAC())
	}
	if got := g.check(frame(gwMAC, otherMAC, etherTypeIPv4, packet)); got != DropSourceMAC {
		t.Errorf("second source: %q", got.Reason())
	}
}

func TestEveryVerdictHasItsReason(t *testing.T) {
	t.Parallel()
	seen := map[Reason]bool{}
	for v := DropShort; v < TakeDHCP; v++ {
		if v.Reason() == "" || seen[v.Reason()] {
			t.Errorf("verdict %d has reason %q", v, v.Reason())
		}
		seen[v.Reason()] = true
	}
}

func BenchmarkGuard(b *testing.B) {
	g := testGuard(b, nil)
	f := frame(gwMAC, guestMAC, etherTypeIPv6, v6(g6, routable6, protoTCP, 64, make([]byte, 1400)))
	b.ReportAllocs()
	for b.Loop() {
		if g.check(f) != Pass {
			b.Fatal("dropped")
		}
	}
}

// FuzzFrame holds that the guard survives any bytes, allocates nothing, and
// lets nothing through that names another source than the leased ones.
func FuzzFrame(f *testing.F) {
	for _, seed := range [][]byte{
		nil, {1}, frame(gwMAC, guestMAC, etherTypeIPv4, nil),
		frame(gwMAC, guestMAC, etherTypeIPv4, v4(g4, routable4, protoTCP, tcp20)),
		frame(allNodes, guestMAC, etherTypeIPv4, v4(none4, bcast, protoUDP, ports(68, 67))),
		frame(allNodes, guestMAC, etherTypeARP, arpPacket(1, guestMAC, g4, gw4)),
		frame(gwMAC, guestMAC, etherTypeIPv6, v6(g6, routable6, extFragment, 64, with(tcp20, 0, protoUDP))),
		frame(solicited, guestMAC, etherTypeIPv6, v6(g6, gw6, protoICMPv6, 255, solicit(icmp6NS, gw6, ourLL))),
	} {
		f.Add(seed)
	}
	g, offline := testGuard(f, nil), NewOffline(gw4, gw6)
	f.Fuzz(func(t *testing.T, b []byte) {
		v := g.check(b)
		if said := offline.Check(b, false); said != "" && said != DropQuiet.Reason() && v.Reason() == "" {
			t.Fatalf("a review would throw away what passes, for %s: %x", said, b)
		}
		if v != Pass && v != TakeDHCP && v != TakeRS {
			if v.Reason() == "" {
				t.Fatalf("verdict %d has no reason", v)
			}
			return
		}
		if len(b) < ethHeader || net.HardwareAddr(b[6:12]).String() != guestMAC.String() {
			t.Fatalf("passed: %x", b)
		}
		if binary.BigEndian.Uint16(b[12:]) == etherTypeIPv4 && v == Pass && [4]byte(b[26:30]) != g4.As4() {
			t.Fatalf("passed with a foreign source: %x", b)
		}
	})
}
