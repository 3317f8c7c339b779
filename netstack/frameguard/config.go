package frameguard

import (
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

const (
	defaultPrefix4 = 24
	defaultPrefix6 = 64

	// MaxFrame is the largest frame in bytes, either way, Ethernet header
	// included. A frame above 65,550 bytes indexes libkrun 1.17.4 out of its
	// buffer, which ends the VMM.
	MaxFrame = 65536
)

// Config describes the link whose frames are judged.
type Config struct {
	GatewayMAC net.HardwareAddr
	// GuestMAC is the only source that is let in. Nil: the first unicast source
	// seen on the link is leased.
	GuestMAC net.HardwareAddr

	Guest4, Gateway4 netip.Addr
	Prefix4          int
	Guest6, Gateway6 netip.Addr
	Prefix6          int

	// DHCP and RouterAdvertisements say what is served on the link.
	DHCP, RouterAdvertisements bool
	// PartialChecksums accepts TCP and UDP checksums over the pseudo header alone, beside right ones.
	PartialChecksums bool
}

// Default has the addresses of a link that names none. They are never routed outside: each sandbox has
// its own link, so all sandboxes may use the same ones.
func Default() Config {
	return Config{
		// 02: locally administered, unicast (IEEE 802).
		GatewayMAC: net.HardwareAddr{0x02, 0x6d, 0x73, 0x62, 0x00, 0x01},
		Guest4:     netip.AddrFrom4([4]byte{192, 168, 127, 2}), Gateway4: netip.AddrFrom4([4]byte{192, 168, 127, 1}),
		Prefix4: defaultPrefix4,
		Guest6:  netip.MustParseAddr("fd6d:7362::2"), Gateway6: netip.MustParseAddr("fd6d:7362::1"),
		Prefix6: defaultPrefix6,
	}
}

// LinkLocal is the fe80::/64 address that RFC 4291 (appendix A) derives from a
// MAC.
func LinkLocal(mac net.HardwareAddr) netip.Addr {
	a := header.LinkLocalAddr(tcpip.LinkAddress(mac))
	return netip.AddrFrom16(a.As16())
}
