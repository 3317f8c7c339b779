package netstack

// verdict is what the guard says about a frame: an index into dropReasons.
type verdict uint8

const (
	pass verdict = iota
	dropShort
	dropLong
	dropSourceMAC
	dropDestMAC
	dropEtherType
	dropARP
	dropHeader
	dropSourceIP
	dropDestIP
	dropMulticast
	dropOptions
	dropExtension
	dropRoutingHeader
	dropFragment
	dropProtocol
	dropICMPType
	dropNDP
	dropRouterAdvert
	dropDHCPServer
	dropDHCP
	dropChecksum
	dropPartial
	// quiet frames are ordinary and need no answer: duplicate address
	// detection of the guest's own address, gratuitous ARP for it.
	dropQuiet

	// takeDHCP and takeRS pass, and are answered here instead of by gVisor.
	takeDHCP
	takeRS
	verdicts
)

// Reasons for which a frame is dropped.
const (
	DropShort         DropReason = "frame_too_short"
	DropLong          DropReason = "frame_too_long"
	DropSourceMAC     DropReason = "source_mac"
	DropDestMAC       DropReason = "destination_mac"
	DropEtherType     DropReason = "ether_type"
	DropARP           DropReason = "arp"
	DropHeader        DropReason = "bad_header"
	DropSourceIP      DropReason = "source_ip"
	DropDestIP        DropReason = "destination_ip"
	DropMulticast     DropReason = "multicast"
	DropOptions       DropReason = "ip_options"
	DropExtension     DropReason = "extension_header"
	DropRoutingHeader DropReason = "routing_header"
	DropFragment      DropReason = "fragment"
	DropProtocol      DropReason = "protocol"
	DropICMPType      DropReason = "icmp_type"
	DropNDP           DropReason = "ndp"
	DropRouterAdvert  DropReason = "router_advertisement"
	DropDHCPServer    DropReason = "dhcp_server"
	DropDHCP          DropReason = "dhcp"
	DropChecksum      DropReason = "bad_checksum"
	// DropPartial is the sum over the pseudo header alone: the guest leaves the rest to a card that doesn't do it.
	DropPartial DropReason = "partial_checksum"
	DropQuiet   DropReason = "needs_no_answer"
)

var dropReasons = [verdicts]DropReason{
	dropShort: DropShort, dropLong: DropLong, dropSourceMAC: DropSourceMAC, dropDestMAC: DropDestMAC,
	dropEtherType: DropEtherType, dropARP: DropARP, dropHeader: DropHeader, dropSourceIP: DropSourceIP,
	dropDestIP: DropDestIP, dropMulticast: DropMulticast, dropOptions: DropOptions,
	dropExtension: DropExtension, dropRoutingHeader: DropRoutingHeader, dropFragment: DropFragment,
	dropProtocol: DropProtocol, dropICMPType: DropICMPType, dropNDP: DropNDP,
	dropRouterAdvert: DropRouterAdvert, dropDHCPServer: DropDHCPServer, dropDHCP: DropDHCP,
	dropChecksum: DropChecksum, dropPartial: DropPartial, dropQuiet: DropQuiet,
}

// reason is empty for frames that pass.
func (v verdict) reason() DropReason { return dropReasons[v] }
