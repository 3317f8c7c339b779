package frameguard

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Offline is the frame guard for frames out of a capture, which doesn't say what was leased to the
// guest. It judges by the guard's own code, with the lease that is most favourable to the frame:
//   - A frame to the gateway's MAC, or to a group from an address of msb's link, is from that link. The
//     guest's IP addresses are known there; its MAC is any that a guest can have, until Sent tells it.
//   - Any other frame is taken to come from the guest's own MAC and addresses and to go to its gateway's.
//     What is left are the checks that no lease changes.
//
// So whatever it drops, the guard would drop; the guard drops some that it lets through. It is not safe for
// several goroutines.
type Offline struct {
	link, claimed *Guard
	// ours says that the gateway is at the addresses that it has by default: of others the guest's are
	// not known.
	ours   bool
	leased bool
	// reset are the addresses of claimed where a frame claims none that can be leased.
	reset guardAddrs
}

// guardAddrs are the addresses that a frame can claim.
type guardAddrs struct {
	guest4, gateway4 [4]byte
	guest6, gateway6 [16]byte
}

// NewOffline returns an Offline of a link whose gateway has the given addresses.
func NewOffline(gateway ...netip.Addr) *Offline {
	cfg := Default()
	cfg.DHCP, cfg.RouterAdvertisements = true, true
	o := &Offline{link: New(&cfg), claimed: New(&cfg), ours: true}
	for _, a := range []netip.Addr{cfg.Gateway4, cfg.Gateway6} {
		o.ours = o.ours && slices.Contains(gateway, a)
	}
	o.reset = guardAddrs{o.link.guest4, o.link.gateway4, o.link.guest6, o.link.gateway6}
	o.claimed.bcast4 = [4]byte{255, 255, 255, 255} // of no subnet that is known
	return o
}

// Sent takes a frame that went to the guest: the gateway answers none but the leased MAC.
func (o *Offline) Sent(frame []byte) {
	if o.leased || len(frame) < ethHeader || macOf(frame[6:]) != o.link.gatewayMAC {
		return
	}
	if to := macOf(frame); to != 0 && to&groupBit == 0 && to != o.link.gatewayMAC {
		o.link.guest.Store(uint64(to))
		o.leased = true
	}
}

// Check says why the guard would drop a frame of the guest's; "" says that it would pass. Checksums are looked
// at if the frame is whole. Those that a guest leaves to its card are taken, as a gateway takes them on request.
func (o *Offline) Check(frame []byte, whole bool) Reason {
	g := o.link
	if len(frame) >= ethHeader && !o.fromLink(frame) {
		o.claim(frame)
		g = o.claimed
	} else if !o.leased {
		g.guest.Store(0) // the source of this frame is leased, if one can be
	}
	v := g.check(frame)
	if whole && v.Reason() == "" {
		v = checkSums(frame, takeNone)
	}
	return v.Reason()
}

// NamesGateway reports whether a frame goes to the gateway's MAC, and whether it comes from there.
func (o *Offline) NamesGateway(frame []byte) (to, from bool) {
	if len(frame) < ethHeader {
		return false, false
	}
	return macOf(frame) == o.link.gatewayMAC, macOf(frame[6:]) == o.link.gatewayMAC
}

// fromLink reports whether a frame is surely of msb's link.
func (o *Offline) fromLink(frame []byte) bool {
	to := macOf(frame)
	if to == o.link.gatewayMAC {
		return o.ours
	}
	if to&groupBit == 0 || !o.ours {
		return false
	}
	body := frame[ethHeader:]
	switch kind := binary.BigEndian.Uint16(frame[12:]); {
	case kind == etherTypeARP && len(body) >= arpLen:
		return o.on4([4]byte(body[14:18]))
	case kind == etherTypeIPv4 && len(body) >= ipv4Header:
		return o.on4([4]byte(body[12:16]))
	case kind == etherTypeIPv6 && len(body) >= ipv6Header:
		return o.link.prefix6.Contains(netip.AddrFrom16([16]byte(body[8:24])))
	}
	return false
}

// on4 reports whether a is of the subnet of msb's link.
func (o *Offline) on4(a [4]byte) bool {
	return [defaultPrefix4 / 8]byte(a[:]) == [defaultPrefix4 / 8]byte(o.link.gateway4[:])
}

// claim makes the frame's own addresses the leased ones, where one like them could be leased.
func (o *Offline) claim(frame []byte) {
	g := o.claimed
	g.guest.Store(0)
	g.gatewayMAC = o.link.gatewayMAC
	if to := macOf(frame); to&groupBit == 0 {
		g.gatewayMAC = to
	}
	g.guest4, g.gateway4, g.guest6, g.gateway6 = o.reset.guest4, o.reset.gateway4, o.reset.guest6, o.reset.gateway6
	body := frame[ethHeader:]
	switch kind := binary.BigEndian.Uint16(frame[12:]); {
	case kind == etherTypeARP && len(body) >= arpLen:
		g.claim4([4]byte(body[14:18]), [4]byte(body[24:28]))
	case kind == etherTypeIPv4 && len(body) >= ipv4Header:
		g.claim4([4]byte(body[12:16]), [4]byte(body[16:20]))
	case kind == etherTypeIPv6 && len(body) >= ipv6Header:
		g.claim6(body)
	}
}

// claim4 takes the addresses of an IPv4 or ARP packet.
func (g *Guard) claim4(src, dst [4]byte) {
	switch {
	case src == [4]byte{}: // a probe for an address that is to be leased, or DHCP
		g.guest4 = dst
	case src[0] != 127 && src[0] < 224:
		g.guest4 = src
	}
	g.gateway4 = dst
}

// claim6 takes the addresses of an IPv6 packet. A solicitation asks for the gateway, an advertisement
// answers it.
func (g *Guard) claim6(p []byte) {
	src, dst := [16]byte(p[8:24]), [16]byte(p[24:40])
	unspecified := src == [16]byte{}
	if !unspecified && src[0] != 0xff && src != netip.IPv6Loopback().As16() {
		g.guest6 = src
	}
	g.gateway6 = dst
	if p[6] != protoICMPv6 || len(p) < ipv6Header+ndpTargetLen || p[ipv6Header] != icmp6NS {
		return
	}
	g.gateway6 = [16]byte(p[ipv6Header+8 : ipv6Header+ndpTargetLen])
	if unspecified { // duplicate address detection
		g.guest6 = g.gateway6
	}
}
