package frameguard

// Verdict is what the guard says about a frame.
type Verdict uint8

// Verdicts on a frame.
const (
	Pass Verdict = iota
	DropShort
	DropLong
	DropSourceMAC
	DropDestMAC
	DropEtherType
	DropARP
	DropHeader
	DropSourceIP
	DropDestIP
	DropMulticast
	DropOptions
	DropExtension
	DropRoutingHeader
	DropFragment
	DropProtocol
	DropICMPType
	DropNDP
	DropRouterAdvert
	DropDHCPServer
	DropDHCP
	DropChecksum
	// DropPartial is the sum over the pseudo header alone: the guest leaves the rest to a card that doesn't do it.
	DropPartial
	// DropStray is a segment of TCP that belongs to no connection and asks for none; netstack finds it. A reset is
	// the answer.
	DropStray
	// DropQuiet frames are ordinary and need no answer: duplicate address
	// detection of the guest's own address, gratuitous ARP for it.
	DropQuiet

	// TakeDHCP and TakeRS pass, and are answered by netstack instead of gVisor.
	TakeDHCP
	TakeRS
	// Verdicts is how many there are.
	Verdicts
)

// Reason says why a frame was dropped. It is empty for one that passed.
type Reason string

var reasons = [Verdicts]Reason{
	DropShort:         "frame_too_short",
	DropLong:          "frame_too_long",
	DropSourceMAC:     "source_mac",
	DropDestMAC:       "destination_mac",
	DropEtherType:     "ether_type",
	DropARP:           "arp",
	DropHeader:        "bad_header",
	DropSourceIP:      "source_ip",
	DropDestIP:        "destination_ip",
	DropMulticast:     "multicast",
	DropOptions:       "ip_options",
	DropExtension:     "extension_header",
	DropRoutingHeader: "routing_header",
	DropFragment:      "fragment",
	DropProtocol:      "protocol",
	DropICMPType:      "icmp_type",
	DropNDP:           "ndp",
	DropRouterAdvert:  "router_advertisement",
	DropDHCPServer:    "dhcp_server",
	DropDHCP:          "dhcp",
	DropChecksum:      "bad_checksum",
	DropPartial:       "partial_checksum",
	DropStray:         "no_connection",
	DropQuiet:         "needs_no_answer",
}

// Reason is empty for frames that pass.
func (v Verdict) Reason() Reason { return reasons[v] }
