package netstack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/msb-project/msb/netstack/frameguard"
)

const (
	// advertRate bounds router advertisements a second (RFC 4861, 6.2.6 asks
	// for fewer, of routers with more than one neighbour).
	advertRate  = 2
	advertBurst = 5
	// routerLifetime in seconds is the longest of RFC 4861; guests solicit
	// again when they come up again.
	routerLifetime = 9000
	infinite       = 0xffffffff

	optPrefix   = 3
	optSourceLL = 1
	optMTU      = 5
	optRDNSS    = 25 // RFC 8106
)

// advertiser answers router solicitations: M=0, O=0, one prefix with L=1, A=1,
// so that a plain guest gives itself the address that the guard expects.
type advertiser struct {
	stack *Stack
	limit *rate.Limiter
}

func newAdvertiser(s *Stack) *advertiser {
	return &advertiser{stack: s, limit: rate.NewLimiter(advertRate, advertBurst)}
}

func (a *advertiser) answer() frameguard.Verdict {
	if !a.limit.Allow() {
		return frameguard.DropNDP
	}
	cfg := &a.stack.cfg
	m := make([]byte, 0, 128)
	m = append(m, byte(header.ICMPv6RouterAdvert), 0, 0, 0, gatewayTTL, 0)
	m = binary.BigEndian.AppendUint16(m, routerLifetime)
	m = append(m, 0, 0, 0, 0, 0, 0, 0, 0) // reachable and retransmit times: the guest's own
	m = append(append(m, optSourceLL, 1), cfg.GatewayMAC...)
	m = append(m, optMTU, 1, 0, 0)
	m = binary.BigEndian.AppendUint32(m, uint32(cfg.MTU))
	const onLinkAutonomous = 0xc0
	m = append(m, optPrefix, 4, uint8(cfg.Prefix6), onLinkAutonomous)
	m = binary.BigEndian.AppendUint32(m, infinite)
	m = binary.BigEndian.AppendUint32(m, infinite)
	m = append(m, 0, 0, 0, 0)
	prefix, _ := cfg.Gateway6.Prefix(cfg.Prefix6)
	m = append(m, prefix.Addr().AsSlice()...)
	m = append(m, optRDNSS, 3, 0, 0)
	m = binary.BigEndian.AppendUint32(m, infinite)
	m = append(m, cfg.Gateway6.AsSlice()...)

	frame := append(make([]byte, header.EthernetMinimumSize+header.IPv6MinimumSize, header.EthernetMinimumSize+header.IPv6MinimumSize+len(m)), m...)
	encodeICMPv6(frame, frameguard.LinkLocal(cfg.GatewayMAC).As16(), netip.IPv6LinkLocalAllNodes().As16(), header.NDPHopLimit)
	a.stack.writeFrame(header.IPv6ProtocolNumber, frame)
	return frameguard.Pass
}
