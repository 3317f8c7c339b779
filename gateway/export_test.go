package gateway

import "time"

// InboundSlots is how many of the slots for connections into the guest are taken.
func InboundSlots(g *Gateway) int { return len(g.inbound.slots) }

// UDPPlaces is how many UDP flows of published ports there are for their bound.
func UDPPlaces(g *Gateway) int {
	g.inbound.udp.mu.Lock()
	defer g.inbound.udp.mu.Unlock()
	return g.inbound.udp.taken
}

// AgeUDPFlows makes the UDP flows of published ports half as silent as they may be, and their clients silent for long.
func AgeUDPFlows(g *Gateway) {
	g.inbound.udp.mu.Lock()
	defer g.inbound.udp.mu.Unlock()
	for f := range g.inbound.udp.live {
		f.last.Store(time.Now().Add(-inboundIdle / 2).UnixNano())
		f.sent.Store(time.Now().Add(-2 * inboundIdle).UnixNano())
	}
}

// AgedUDPFlows counts the flows of which AgeUDPFlows was the last to happen, and those whose clients have sent nothing since.
func AgedUDPFlows(g *Gateway) (flows, clients int) {
	g.inbound.udp.mu.Lock()
	defer g.inbound.udp.mu.Unlock()
	for f := range g.inbound.udp.live {
		if time.Since(time.Unix(0, f.last.Load())) >= inboundIdle/2 {
			flows++
		}
		if time.Since(time.Unix(0, f.sent.Load())) >= 2*inboundIdle {
			clients++
		}
	}
	return flows, clients
}
