package netstack

import (
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// reserveWindow announces one unit of window less than gVisor has.
//
// gVisor rounds its window down to the scale's unit, both where it announces it
// and where it judges what comes (tcp/rcv.go, acceptable). As bytes arrive, the
// edge so moves back by up to a unit, and what a guest sent up to an edge that
// was announced before is out of window: dropped, its acknowledgement with it.
// With both directions full neither side hears the other again. RFC 7323,
// section 2.4, has the receiver take what it once announced. With a unit held
// back, no announced edge lies behind one that gVisor still accepts.
//
// A SYN's window is not scaled; what it announces is far from full when the next
// segment leaves.
func reserveWindow(pkt *stack.PacketBuffer) {
	if pkt.TransportProtocolNumber != header.TCPProtocolNumber {
		return
	}
	tcp := header.TCP(pkt.TransportHeader().Slice())
	if len(tcp) < header.TCPMinimumSize || tcp.Flags().Intersects(header.TCPFlagSyn|header.TCPFlagRst) {
		return
	}
	window := tcp.WindowSize()
	if window == 0 {
		return
	}
	tcp.SetWindowSize(window - 1)
	// RFC 1624: HC' = ~(~HC + ~m + m'). Where the checksum is still that of the
	// pseudo header, completeChecksum sums the new window up.
	if pkt.GSOOptions.Type == stack.GSONone || !pkt.GSOOptions.NeedsCsum {
		sum := checksum.Combine(^tcp.Checksum(), ^window)
		tcp.SetChecksum(^checksum.Combine(sum, window-1))
	}
}
