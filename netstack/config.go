package netstack

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/msb-project/msb/netstack/frameguard"
)

const (
	// DefaultMTU in bytes is what every NIC takes.
	DefaultMTU = 1500
	// LargeMTU in bytes is for a guest whose NIC receives such frames (virtio
	// with mergeable buffers, as QEMU's, or with TSO offered to the guest, as
	// libkrun's; libkrun's with features 0 takes 1500 only). It is five to seven
	// times as fast, because a transfer costs what its frames cost. It is the
	// largest multiple of 16 for which frame and headers stay under MaxFrame.
	LargeMTU = 65520
	// minMTU is the smallest link that IPv6 runs on (RFC 8200, section 5).
	minMTU = 1280

	// MaxFrame is the largest frame in bytes, either way, Ethernet header
	// included: LargeMTU and gsoMaxSize stay under it.
	MaxFrame = frameguard.MaxFrame
)

// Defaults of Limits.
const (
	defaultTCPConnections = 512
	defaultTCPInFlight    = 256
	defaultUDPFlows       = 256
	defaultPings          = 32
)

// ErrConfig is wrapped by every error of New about its Config.
var ErrConfig = errors.New("netstack: bad configuration")

// Config describes one link and the stack behind it. Zero fields get the
// documented defaults.
type Config struct {
	// GatewayMAC is the only address that answers on the link. Default
	// 02:6d:73:62:00:01.
	GatewayMAC net.HardwareAddr
	// GuestMAC is the only source that is let in. Nil: the first unicast source
	// seen on the link is leased.
	GuestMAC net.HardwareAddr

	// Guest4 and Gateway4 default to 192.168.127.2 and .1, Prefix4 to 24. With
	// Prefix4 32 the guest has no neighbour but the gateway, which may have any
	// other address; so has Prefix6 128.
	Guest4, Gateway4 netip.Addr
	Prefix4          int
	// Guest6 and Gateway6 default to fd6d:7362::2 and ::1, Prefix6 to 64.
	Guest6, Gateway6 netip.Addr
	Prefix6          int

	// MTU in bytes, as the guest sees it; DefaultMTU if 0.
	MTU int
	// LargeFrames lets TCP segments of up to MaxFrame bytes go to the guest
	// whatever MTU is. Only for a guest whose NIC takes them (mergeable receive
	// buffers, or TSO offered to the guest).
	LargeFrames bool
	// PartialChecksums accepts TCP and UDP checksums over the pseudo header
	// alone, beside right ones. For a link on which the guest leaves the rest to
	// its card (offload features given to it); the link itself loses nothing.
	PartialChecksums bool

	Limits  Limits
	Handler Handler
	// Tap is handed every frame that passes in either direction, and the ones
	// that the guard drops; nil for none.
	Tap FrameTap

	// DHCP serves the leased IPv4 configuration to the leased MAC.
	DHCP bool
	// RouterAdvertisements answers router solicitations (SLAAC off, prefix
	// on link, default router) so that plain guests find IPv6.
	RouterAdvertisements bool
	// DNS is the resolver that DHCP clients get; the gateway's own address if invalid.
	DNS netip.Addr
}

// Limits bound everything that is keyed by guest input. 0 means the default.
type Limits struct {
	// TCPConnections counts from SYN to the end of the connection; above it a
	// SYN is answered with RST.
	TCPConnections int
	// TCPInFlight bounds connections that are neither accepted nor rejected
	// yet; above it a SYN is answered with RST.
	TCPInFlight int
	// UDPFlows bounds the flow table; above it the flow that was idle for
	// longest gives way if it was idle for udpEvictIdle, else the packet is
	// answered with ICMP administratively prohibited.
	UDPFlows int
	// Pings bounds echo requests being handled; above it they are dropped.
	Pings int
	// UDPIdle ends a flow without traffic; default 2 minutes.
	UDPIdle time.Duration
	// DNSIdle is UDPIdle for port 53; default 30 seconds.
	DNSIdle time.Duration
	// EgressRate in bytes per second slows the reading of frames; 0: none.
	EgressRate int64
}

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.TCPConnections, defaultTCPConnections)
	def(&l.TCPInFlight, min(defaultTCPInFlight, l.TCPConnections))
	def(&l.UDPFlows, defaultUDPFlows)
	def(&l.Pings, defaultPings)
	if l.UDPIdle == 0 {
		l.UDPIdle = defaultUDPIdle
	}
	if l.DNSIdle == 0 {
		l.DNSIdle = defaultDNSIdle
	}
	return l
}

// withDefaults fills the zero fields and checks the result.
func (c Config) withDefaults() (Config, error) {
	if c.Handler == nil {
		return c, fmt.Errorf("%w: no Handler: say what to do with flows", ErrConfig)
	}
	def := frameguard.Default()
	if c.GatewayMAC == nil {
		c.GatewayMAC = def.GatewayMAC
	}
	if !c.Guest4.IsValid() && !c.Gateway4.IsValid() {
		c.Guest4, c.Gateway4 = def.Guest4, def.Gateway4
	}
	if !c.Guest6.IsValid() && !c.Gateway6.IsValid() {
		c.Guest6, c.Gateway6 = def.Guest6, def.Gateway6
	}
	if c.Prefix4 == 0 {
		c.Prefix4 = def.Prefix4
	}
	if c.Prefix6 == 0 {
		c.Prefix6 = def.Prefix6
	}
	if c.MTU == 0 {
		c.MTU = DefaultMTU
	}
	if !c.DNS.IsValid() {
		c.DNS = c.Gateway4
	}
	c.Limits = c.Limits.withDefaults()
	return c, c.check()
}

// guard is the part of it that the frame guard goes by.
func (c *Config) guard() *frameguard.Config {
	return &frameguard.Config{
		GatewayMAC: c.GatewayMAC, GuestMAC: c.GuestMAC,
		Guest4: c.Guest4, Gateway4: c.Gateway4, Prefix4: c.Prefix4,
		Guest6: c.Guest6, Gateway6: c.Gateway6, Prefix6: c.Prefix6,
		DHCP: c.DHCP, RouterAdvertisements: c.RouterAdvertisements, PartialChecksums: c.PartialChecksums,
	}
}

func (c *Config) check() error {
	for _, mac := range []net.HardwareAddr{c.GatewayMAC, c.GuestMAC} {
		if mac != nil && (len(mac) != 6 || mac[0]&1 != 0) {
			return fmt.Errorf("%w: %s is not a unicast MAC of 6 bytes", ErrConfig, mac)
		}
	}
	if c.GatewayMAC.String() == c.GuestMAC.String() {
		return fmt.Errorf("%w: guest and gateway share the MAC %s: give the guest another", ErrConfig, c.GuestMAC)
	}
	if err := samePrefix(c.Guest4, c.Gateway4, c.Prefix4, netip.Addr.Is4); err != nil {
		return err
	}
	if err := samePrefix(c.Guest6, c.Gateway6, c.Prefix6, netip.Addr.Is6); err != nil {
		return err
	}
	if c.MTU < minMTU || c.MTU > LargeMTU {
		return fmt.Errorf("%w: MTU %d: choose one from %d to %d", ErrConfig, c.MTU, minMTU, LargeMTU)
	}
	return nil
}

// samePrefix checks that both addresses are of one family, differ, and share
// the prefix, unless that is of one address.
func samePrefix(guest, gateway netip.Addr, bits int, family func(netip.Addr) bool) error {
	p, err := gateway.Prefix(bits)
	if err != nil {
		return fmt.Errorf("%w: gateway %s/%d: %w", ErrConfig, gateway, bits, err)
	}
	if !family(guest) || !family(gateway) || guest == gateway || !p.Contains(guest) && !p.IsSingleIP() || guest.Is4In6() {
		return fmt.Errorf("%w: guest %s and gateway %s must be two addresses of one family inside %s", ErrConfig, guest, gateway, p)
	}
	return nil
}
