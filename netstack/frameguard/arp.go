package frameguard

import (
	"bytes"
	"encoding/binary"
)

// arpLen is an ARP packet for Ethernet and IPv4 (RFC 826).
const arpLen = 28

// arpHead is hardware Ethernet, protocol IPv4, address lengths 6 and 4.
var arpHead = []byte{0, 1, 8, 0, 6, 4}

// checkARP lets through what asks for the gateway, or answers it, and claims
// nothing but the guest's own address.
func (g *Guard) checkARP(p []byte) Verdict {
	if len(p) < arpLen || !bytes.Equal(p[:6], arpHead) {
		return DropARP
	}
	op := binary.BigEndian.Uint16(p[6:])
	senderMAC, sender, target := p[8:14], [4]byte(p[14:18]), [4]byte(p[24:28])
	if uint64(macOf(senderMAC)) != g.guest.Load() {
		return DropARP
	}
	probe := op == 1 && sender == [4]byte{} // RFC 5227
	if sender != g.guest4 && !probe {
		return DropARP // claims the gateway's address, or another's
	}
	switch {
	case target == g.gateway4 && op == 1 && !probe, target == g.gateway4 && op == 2:
		return Pass
	case target == g.guest4:
		return DropQuiet // announces or probes its own address
	}
	return DropARP
}
