package frameguard

const (
	ndpHops      = 255 // anything else crossed a router (RFC 4861, section 7.1)
	ndpTargetLen = 24
	ndpRSLen     = 8
	ndpSourceLL  = 1
	ndpTargetLL  = 2
)

// checkNDP lets solicitations for the gateway and the guest's answers about
// itself through.
func (g *Guard) checkNDP(src, dst [16]byte, hops byte, p []byte) Verdict {
	switch p[0] {
	case icmp6RA, icmp6Redir:
		return DropRouterAdvert
	}
	if hops != ndpHops || p[1] != 0 {
		return DropNDP
	}
	unspecified := src == [16]byte{}
	if !unspecified && !g.source6(src) {
		return DropSourceIP
	}
	if p[0] == icmp6RS {
		if !g.slaac || !g.ownLinkOptions(p[ndpRSLen:]) {
			return DropQuiet
		}
		return TakeRS
	}
	if len(p) < ndpTargetLen || !g.ownLinkOptions(p[ndpTargetLen:]) {
		return DropNDP
	}
	target := [16]byte(p[8:24])
	toGateway := target == g.gateway6 || target == g.gatewayLL
	switch {
	case p[0] == icmp6NS && toGateway && !unspecified:
		return Pass
	case p[0] == icmp6NS && unspecified && g.source6(target):
		return DropQuiet // duplicate address detection of its own address
	case p[0] == icmp6NA && g.source6(target) && !unspecified && (dst == g.gateway6 || dst == g.gatewayLL):
		return Pass
	case p[0] == icmp6NA && g.source6(target):
		return DropQuiet // announces itself to all nodes
	}
	return DropNDP
}

// ownLinkOptions says whether options are well formed and every link-layer
// address in them is the guest's.
func (g *Guard) ownLinkOptions(o []byte) bool {
	for len(o) > 0 {
		if len(o) < 8 || o[1] == 0 || int(o[1])*8 > len(o) {
			return false
		}
		if (o[0] == ndpSourceLL || o[0] == ndpTargetLL) && uint64(macOf(o[2:8])) != g.guest.Load() {
			return false
		}
		o = o[int(o[1])*8:]
	}
	return true
}
