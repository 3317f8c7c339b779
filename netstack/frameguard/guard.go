package frameguard

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
)

const (
	ethHeader = 14

	etherTypeIPv4 = 0x0800
	etherTypeARP  = 0x0806
	etherTypeIPv6 = 0x86dd
	etherTypeRARP = 0x8035 // RFC 903: QEMU announces a guest's MAC so, after a warm start

	protoICMP   = 1
	protoIGMP   = 2
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// Guard judges frames before any other code reads them (invariants 3 and 4). It
// keeps no state but the leased MAC, allocates nothing, and reads only bytes
// that it has seen to exist. Everything it lets through names the leased MAC and
// a leased address as its source.
type Guard struct {
	gatewayMAC mac
	guest      atomic.Uint64 // leased MAC; 0: none yet
	guest4     [4]byte
	gateway4   [4]byte
	bcast4     [4]byte
	guest6     [16]byte
	gateway6   [16]byte
	gatewayLL  [16]byte
	prefix6    netip.Prefix
	slaac      bool
	dhcp       bool
	partial    sums // checksums that are taken
}

// mac is a MAC in the low 48 bits, so that it compares and stores atomically.
type mac uint64

func macOf(b []byte) mac {
	return mac(binary.BigEndian.Uint32(b))<<16 | mac(binary.BigEndian.Uint16(b[4:]))
}

func (m mac) addr() net.HardwareAddr {
	return net.HardwareAddr{byte(m >> 40), byte(m >> 32), byte(m >> 24), byte(m >> 16), byte(m >> 8), byte(m)}
}

const (
	broadcastMAC mac = 0xffff_ffff_ffff
	groupBit     mac = 1 << 40
	bridgeGroups mac = 0x0180_c200_0000 // to 0f, which no bridge passes on (IEEE 802.1Q, table 8-1)
)

// New builds the guard of a link.
func New(cfg *Config) *Guard {
	g := &Guard{
		gatewayMAC: macOf(cfg.GatewayMAC),
		guest4:     cfg.Guest4.As4(), gateway4: cfg.Gateway4.As4(),
		guest6: cfg.Guest6.As16(), gateway6: cfg.Gateway6.As16(),
		gatewayLL: LinkLocal(cfg.GatewayMAC).As16(),
		slaac:     cfg.RouterAdvertisements, dhcp: cfg.DHCP,
	}
	g.prefix6, _ = cfg.Gateway6.Prefix(cfg.Prefix6)
	g.bcast4 = [4]byte{255, 255, 255, 255}
	if cfg.Prefix4 < 31 { // others have no broadcast address of their own (RFC 3021)
		binary.BigEndian.PutUint32(g.bcast4[:], binary.BigEndian.Uint32(g.gateway4[:])|^uint32(0)>>cfg.Prefix4)
	}
	if cfg.PartialChecksums {
		g.partial = takePartial
	}
	if cfg.GuestMAC != nil {
		g.guest.Store(uint64(macOf(cfg.GuestMAC)))
	}
	return g
}

// GuestMAC is the leased address, nil before there is one.
func (g *Guard) GuestMAC() net.HardwareAddr {
	if m := g.guest.Load(); m != 0 {
		return mac(m).addr()
	}
	return nil
}

// Check judges one frame, its checksums too.
func (g *Guard) Check(frame []byte) Verdict {
	v := g.check(frame)
	if v == Pass || v == TakeDHCP || v == TakeRS {
		if bad := checkSums(frame, g.partial); bad != Pass {
			return bad
		}
	}
	return v
}

// check judges one frame by all but its checksums.
func (g *Guard) check(frame []byte) Verdict {
	switch {
	case len(frame) < ethHeader:
		return DropShort
	case len(frame) > MaxFrame:
		return DropLong
	}
	if !g.leased(macOf(frame[6:])) {
		return DropSourceMAC
	}
	dst := macOf(frame)
	if dst != g.gatewayMAC && dst&groupBit == 0 {
		return DropDestMAC
	}
	body := frame[ethHeader:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherTypeARP:
		return g.checkARP(body)
	case etherTypeIPv4:
		return g.checkIPv4(dst, body)
	case etherTypeRARP:
		return DropQuiet
	case etherTypeIPv6:
		return g.checkIPv6(dst, body)
	}
	if dst&^0xf == bridgeGroups {
		return DropMulticast // LLDP, spanning tree, 802.1X: for a switch, which is not there
	}
	return DropEtherType // VLAN tags, LLC lengths and whatever else
}

// leased says whether m is the guest's MAC, and leases it if none is yet.
func (g *Guard) leased(m mac) bool {
	if have := mac(g.guest.Load()); have != 0 {
		return m == have
	}
	if m == 0 || m&groupBit != 0 || m == g.gatewayMAC {
		return false
	}
	g.guest.Store(uint64(m))
	return true
}
