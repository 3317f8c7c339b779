package netstack

import (
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// completeChecksum finishes the TCP checksum of a segment that gVisor leaves to
// segmentation hardware, which isn't there: it holds the sum of the pseudo
// header only, and a guest drops such a segment.
func completeChecksum(pkt *stack.PacketBuffer) {
	if pkt.GSOOptions.Type == stack.GSONone || !pkt.GSOOptions.NeedsCsum {
		return
	}
	tcp := header.TCP(pkt.TransportHeader().Slice())
	tcp.SetChecksum(^checksum.Combine(checksum.Checksum(tcp, 0), pkt.Data().Checksum()))
}
